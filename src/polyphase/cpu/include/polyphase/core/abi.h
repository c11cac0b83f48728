// What the launcher, the kernels and the samplers hand to each other: plain data, no ownership.
#pragma once

#include <cstdint>

// Loops over a whole row are compiled once, wherever they are called: the call costs nothing beside them, and a kernel
// builds sooner.
#define POLYPHASE_ROW_LOOP __attribute__((noinline))
// What such a loop does for a block is part of it.
#define POLYPHASE_BLOCK __attribute__((always_inline)) inline

namespace polyphase {

// One step of an axis map, as `records/recipes.py` packs it: five int64 and three doubles, 64 bytes.
struct Step {
  enum Kind : int64_t { kResize, kArea, kNearest, kFlip, kSlice, kPad };
  // Bits. kFirst: bytes are summed along this axis before they are along later ones.
  enum How : int64_t { kAlignCorners = 1, kFirst = 2 };
  int64_t kind;
  int64_t a;     // kResize, kArea, kNearest: size      kSlice: start   kPad: before
  int64_t b;     // kResize: Filter   kNearest: exact   kSlice: stop    kPad: after
  int64_t c;     // kResize: antialias                  kSlice: step    kPad: PadMode
  int64_t d;     // kResize: kAlignCorners, kFirst                      kPad: border number
  double scale;  // kResize, kNearest: the user's scale factor, NaN for none
  double begin;  // kResize, kNearest: of the box that is resized, in pixels; 0 for the whole axis
  double end;    // and NaN for the whole axis
};
static_assert(sizeof(Step) == 64);

enum Filter : int64_t { kBilinear, kBicubic, kBox, kHamming, kLanczos };
enum PadMode : int64_t { kConstant, kReflect, kReplicate, kCircular, kSymmetric };

// The arithmetic coefficients are made in: `windows.eager_arithmetic` of float32, float64 and uint8 images; and of float32
// ones where antialiased weights are computed in double, as on CUDA.
enum class TapArithmetic : int32_t { kFloat32, kFloat64, kQuantised, kFloat32InDouble };

// The banded matrix of one axis, row by row: output i is the sum over t in [begin[i], begin[i + 1]) of
// weight t * input[index[t]]. Within a row indices ascend. No weight is 0: what is not there is not read.
struct Taps {
  int64_t in_size;
  int64_t out_size;
  const int32_t* begin;      // out_size + 1
  const int32_t* index;
  const double* exact;       // weights, those of float32 exactly; null where they are quantised
  const int16_t* quantised;  // weights over 2^precision; null where they are not
  const int32_t* border;     // null, or per output: 0 sampled, n the program's n-th constant border (then no taps)
  int32_t precision;         // 0 where not quantised
  int32_t index_only;        // every output that is no border has one tap of weight 1
};

// How the outputs of an axis lie that is cut into blocks of so many, as patches are: `together` blocks at a time lie
// `inner_stride` apart, and each such group `outer_stride` from the next. Not cut where size is 0.
struct Blocks {
  int64_t size;
  int64_t together;
  int64_t inner_stride;
  int64_t outer_stride;

  int64_t place(int64_t block) const { return block / together * outer_stride + block % together * inner_stride; }
};

// One axis of the image. Strides are in elements of the source and of the target; of an axis that is cut into blocks, that
// of the target is within a block.
struct Axis {
  int64_t in_size;
  int64_t out_size;
  int64_t in_stride;
  int64_t out_stride;
  const Taps* taps;   // null for the identity; of the axis that is read horizontally they have neither begin nor what follows
  int64_t most_taps;  // of an output
  int64_t tap_count;  // of all
  Blocks blocks;

  // Of output i in the target.
  int64_t place(int64_t i) const {
    if (blocks.size == 0) return i * out_stride;
    return blocks.place(i / blocks.size) + i % blocks.size * out_stride;
  }
};

constexpr int kMaxOuter = 8;
constexpr int kMaxOperands = 8;

// A tensor the epilogue reads: per channel, or of the output's shape.
struct ChannelOperand {
  const void* data;
  int64_t element_bytes;
};
struct Operand : ChannelOperand {
  int64_t outer_strides[kMaxOuter];
  int64_t z_stride, y_stride, x_stride, channel_stride;
};

// body(context, begin, end) over [0, count), split among threads.
using Body = void (*)(void* context, int64_t begin, int64_t end);
using Parallel = void (*)(int64_t count, int64_t threads, Body body, void* context);

// What every call of a kernel has: the tensors, what its arithmetic reads besides, and threads. Launching fills in the
// addresses and the number of threads; the rest is bound once.
struct KernelCall {
  void* target;              // of gradients of a warp, the gradient that came in, which is only read
  const void* source;        // the image
  const void* coordinates;   // of a warp: a grid or matrices
  void* image_gradient;      // of gradients of a warp: where they go, null where not asked for
  void* coordinate_gradient;

  ChannelOperand vectors[kMaxOperands];
  Operand tensors[kMaxOperands];
  int64_t vector_count;
  int64_t tensor_count;

  int64_t threads;
  Parallel parallel;
};

// Outputs of a row that are a constant border, in pixels.
struct BorderRun {
  int64_t begin, end;
  int32_t number;
};

struct Ahead;
struct MovedRows;

// How rows are read horizontally.
constexpr int kMostTogether = 4;
struct RowMap {
  void (*run)(const RowMap* map, const void* in, void* out, const Ahead* ahead);
  void (*run_rows)(const RowMap* map, const MovedRows& rows);
  // `run` of up to kMostTogether rows, where that is better than one after the other; else null.
  void (*run_together)(const RowMap* map, const void* const* in, void* const* out, int rows);
  // `run` of the sampler's `sum` of rows, where that is better done at once; else null. `sums_all`: whatever else there is.
  void (*run_sum)(const RowMap* map, const void* const* rows, const void* packed, int taps, void* out,
                  const Ahead* ahead);
  bool sums_all;
  int64_t channels;         // that are made of a pixel: those that are wanted, or all that lie there
  int64_t readable_length;  // a row that is read must have this many elements, whatever they are
  const BorderRun* borders;
  int64_t border_count;
  bool weighted;
  bool fetches;  // can fetch rows meanwhile
  int64_t first_read, end_read;  // pixels of a row that have weights
};

struct TapTable;

// Which rows of a table, in their order: listed, or where there is no list, one every `step` rows. What is negative is a
// border, which has no taps.
struct WantedRows {
  const int32_t* list;
  int64_t first, step, count;

  int64_t operator[](int64_t i) const { return list != nullptr ? list[i] : first + step * i; }
};

// What a sampler's library exports under the name `polyphase_sampler`: all that is done to values of one type, whatever
// the program. One that only moves them is for axes that are not weighted.
struct Sampler {
  // The taps of a weighted step, after the crops and flips before it; fused: as eager's forward computes, where its
  // backward differs; rows: those of its outputs that are wanted. Null where values are only moved.
  void (*weigh)(const Step* steps, const Step* weighted, int64_t in_size, bool fused, const WantedRows& rows,
                TapTable* table);
  // Tables to read rows of pixels of so many elements by these taps, of which the first `channels` are wanted; `bytes` is
  // set to their size.
  const RowMap* (*prepare)(const Taps& taps, int64_t channels, int64_t pixel, int64_t element_bytes, int64_t* bytes);
  void (*release)(const RowMap* map);
  // The vertical pass: a weighted sum of rows. `packed` has 8 bytes for each of an even number of taps; of all, those from
  // `first` on.
  void (*pack)(const Taps& all, int64_t first, int taps, void* packed);
  void (*sum)(const void* const* rows, const void* packed, int taps, int precision, void* out, int64_t length,
              const Ahead* ahead);
  bool any_order;          // the horizontal pass may come before or after the others
  bool nearest_in_double;  // finds the nearest pixel by a double ratio
  bool fuses_backward = false;  // `DeviceRules.bicubic_backward_fused`, also where the CPU's eager does not
};

// A call of axis maps.
//
// A row is x.out_size pixels of `channels` elements each. y and z are the other weighted axes (or, of no weighted axis,
// some other one); every other axis is outer, its map index-only or the identity.
struct MapsCall : KernelCall {
  Axis outer[kMaxOuter];
  Axis z, y, x;
  int64_t outer_count;
  int64_t channels;
  int64_t read_channels;  // `channels`; or one more, which lies beside them in the source, and is dropped
  int64_t in_channel_stride;
  int64_t out_channel_stride;
  int64_t sums_rows_first;  // y is summed before x, whatever the sampler: rounded in between
  int64_t source_by_rows;  // the source is a list of where the rows along y begin: a picture of several blocks of memory
  const Sampler* sampler;
  const RowMap* row_map;  // of x; null for the identity

  const uint8_t* borders;      // border n, from 1: border_bytes from (n - 1) * border_stride on
  int64_t border_stride;
  int64_t first_stored;        // borders from this number on are in the target's dtype and go around the epilogue
  int64_t border_bytes;        // of a border that does not
  int64_t stored_border_bytes;

  int64_t channel_axis;  // the outer axis that is the channels; -1: the channels are those of a pixel

  int64_t copies;  // every row is written so often, this far apart in the target
  int64_t copy_stride;

  int64_t zeroed_bytes;  // of the target, all of it, where most rows are sums of nothing: these need not be made; else 0
};

// What a kernel's library exports under the name `polyphase_kernel`: one program's arithmetic, and the driver.
struct Kernel {
  void (*run)(const KernelCall& call);  // a MapsCall or a WarpCall, as the kernel is of maps or of a warp
  int64_t element_bytes;                // of a value that is sampled
  int64_t samples_source;               // rows are sampled as they lie: nothing is computed before
};

// How many pixels lie from the first tap of output x to its last.
inline int64_t width_of(const Taps& taps, int64_t x) {
  const int32_t begin = taps.begin[x], end = taps.begin[x + 1];
  return begin == end ? 0 : taps.index[end - 1] - taps.index[begin] + 1;
}

inline int64_t widest_of(const Taps& taps, int64_t first, int64_t last) {
  int64_t widest = 0;
  for (int64_t x = first; x <= last; ++x) widest = width_of(taps, x) > widest ? width_of(taps, x) : widest;
  return widest;
}

// Element l of an interleaved row is channel c of pixel x. Counted along: a division for every lane would take longer than
// the rest of a table.
struct Place {
  Place(int64_t l, int64_t channels) : x(l / channels), c(l % channels), channels_(channels) {}
  void next() {
    if (++c == channels_) {
      c = 0;
      ++x;
    }
  }
  int64_t x, c;

 private:
  int64_t channels_;
};

}  // namespace polyphase
