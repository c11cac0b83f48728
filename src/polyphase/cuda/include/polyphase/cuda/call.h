// What a launch hands to a kernel of axis maps. `cuda/calls.py` packs it and describes every field; where the two
// differ, no kernel compiles.
//
// A kernel's source says first how many axes and operands its calls have: parameters are no longer than they need to be,
// and what most kernels read comes first, in few lines of the cache.
#pragma once

#include <cstdint>

namespace polyphase {

constexpr int kOuter = POLYPHASE_OUTER;  // at least 1
constexpr int kVectors = POLYPHASE_VECTORS, kTensors = POLYPHASE_TENSORS;
constexpr int kNumbers = POLYPHASE_NUMBERS;  // of the formula of a warp

// Whether a kernel's calls are a table of many, of which a block has its own in shared memory; else the one is its parameters.
#ifdef POLYPHASE_BATCHED
constexpr bool kBatched = true;
#else
constexpr bool kBatched = false;
#endif

// A pointer into the device's memory: of one that was in shared memory a compiler is told so, or every access could be one of
// shared memory.
template <class T>
inline T* global(T* pointer) {
#ifdef __CUDACC__
  __builtin_assume(__isGlobal(pointer));
#endif
  return pointer;
}

// Such a pointer of a call. Of parameters a compiler knows it.
template <class T>
struct Global {
  T* pointer;

  T* known() const { return kBatched ? global(pointer) : pointer; }
  template <class To>
  operator To*() const {
    return static_cast<To*>(known());
  }
  template <class Index>
  auto& operator[](Index i) const {
    return known()[i];
  }
  bool operator==(decltype(nullptr)) const { return pointer == nullptr; }
  bool operator!=(decltype(nullptr)) const { return pointer != nullptr; }
};

// One axis. Strides are in elements of the source and of the target. Tables lie on the device.
struct Axis {
  int64_t in_size;
  int64_t out_size;
  int64_t in_stride;
  int64_t out_stride;
  // Windows: output i reads taps inputs from first[i] on, all of them inside the image; a weight of 0 stands for an input
  // that is not read. Lists (index is not null): output i reads index[t] for t in [first[i], first[i + 1]).
  // No table (first is null): the identity.
  Global<const int32_t> first;
  Global<const int32_t> index;
  Global<const void> weight;     // of an output's taps, one after another; null where each has one tap of weight 1
  Global<const int32_t> border;  // null, or per output: 0 sampled, n the program's n-th constant border
  int64_t taps;           // of a window
  int64_t precision;      // of quantised weights, which stand over 2^precision; of a batch, -1 where the table has it
};

constexpr int kBeforeTable = 4;  // numbers before `first`, where the table has its precision: 16 bytes

// Where a tensor of the output's shape has the element that belongs to an output.
struct TensorStrides {
  int64_t origin;
  int64_t outer[kOuter];
  int64_t z, y, x, channel;
};

// An array needs an element, also where nothing is read from it.
constexpr int at_least_one(int count) { return count > 0 ? count : 1; }

// A row is x.out_size pixels of `channels` elements each; y and z are the other axes that may be weighted; every other
// axis is outer, its map index-only or the identity.
struct MapsCall {
  // Filled in by a launch.
  Global<void> target;
  Global<const void> source;

  int64_t planes;  // the product of the outer sizes
  int64_t channels;
  int64_t in_channel_stride;
  int64_t out_channel_stride;
  int64_t target_origin;  // of the first output, in elements: an axis that is walked backwards has a negative stride
  int64_t source_origin;  // likewise, of the first input
  int64_t channel_axis;   // the outer axis that vectors go along; -1: the channels of a pixel

  // How the work is cut: as each kernel says.
  int64_t tiles;        // along a row
  int64_t strips;       // of rows in a plane
  int64_t tile;         // outputs in a tile, or a power of two
  int64_t strip;        // rows in a strip
  int64_t span;         // elements of a staged row
  int64_t staged_rows;

  Axis x, y;
  Axis outer[kOuter];
  Global<const int32_t> offsets;  // of moved values: for every element of a row, where the source's row has it; null: computed
  int64_t row_origin;      // then, where it has the first
  Axis z;

  Global<const uint8_t> borders;  // border n, from 1: from (n - 1) * border_stride on
  int64_t border_stride;
  int64_t first_stored;    // borders from this number on are in the target's dtype and go around the epilogue

  // Filled in by a launch.
  Global<const void> vectors[at_least_one(kVectors)];
  Global<const void> tensors[at_least_one(kTensors)];

  TensorStrides tensor_strides[at_least_one(kTensors)];
};

}  // namespace polyphase
