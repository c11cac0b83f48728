// The driver of a warp: rows of the output, a tile of pixels at a time.
//
//     positions -> padding -> taps -> values, weighted and summed -> fill -> epilogue -> target
#pragma once

#include <cstring>

#include "polyphase/core/cache.h"
#include "polyphase/core/standard.h"
#include "polyphase/simd/streamed.h"
#include "polyphase/warp/bands.h"
#include "polyphase/warp/cubic.h"
#include "polyphase/warp/fill.h"
#include "polyphase/warp/inside.h"
#include "polyphase/warp/nearest.h"
#include "polyphase/warp/sample.h"

namespace polyphase {

// G: the dtype of coordinates. P: the dtype of positions and weights.
template <class Prologue, class Filter, class G, class P, int kAxes, class Epilogue, class Formula>
class WarpWorker {
 public:
  using V = typename Prologue::To;
  using O = typename Epilogue::To;
  using Sampler = WarpSampler<Prologue, Filter, P, kAxes>;

  explicit WarpWorker(const WarpCall& call)
      : call_(call),
        positions_(call),
        sampler_(call),
        inner_(call, positions_.axis(0), positions_.axis(1)),
        streams_(can_stream(call)),
        may_be_in_place_(Epilogue::kIdentity && call.target_strides.x == 1 && !streams_),
        in_registers_(kInner && (__is_same(P, float) || call.fill_rule == kFillNone) && inner_.can()),
        followed_rows_(followed_rows(call, sizeof(typename Prologue::From), sizeof(G), sizeof(O), streams_)),
        filled_(call.fill_rule != kFillNone),
        fill_(call) {}

  // Of outputs that are one row, parts begin to end: of `parts` that each image is cut into.
  void run_parts(int64_t begin, int64_t end, int64_t parts) {
    const int64_t length = call_.out_size[2], tiles = (length + kTile - 1) / kTile;
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t part = unit % parts, stop = min(length, tiles * (part + 1) / parts * kTile);
      n_ = unit / parts;
      z_ = 0;
      positions_.enter_image(n_);
      sampler_.enter_image(n_);
      O* target = static_cast<O*>(call_.target) + n_ * call_.target_strides.batch;
      for (int64_t x = tiles * part / parts * kTile; x < stop; x += kTile) {
        tile(0, x, target + x * call_.target_strides.x);
      }
    }
    if (streams_) finish_streaming();
  }

  // Output rows begin to end, counted over (batch, z, y). Tiles go down a band of rows before they go right.
  void run(int64_t begin, int64_t end) {
    const int64_t rows = call_.out_size[1];
    for (int64_t r = begin; r < end;) {
      const int64_t plane = r / rows, y = r % rows;
      n_ = plane / call_.out_size[0];
      z_ = plane % call_.out_size[0];
      positions_.enter_image(n_);
      sampler_.enter_image(n_);
      const ImageStrides& s = call_.target_strides;
      O* target = static_cast<O*>(call_.target) + n_ * s.batch + z_ * s.z + y * s.y;
      const int64_t stop = min(min(end - plane * rows, rows), y + rows_of_band(y));
      for (int64_t x = 0; x < call_.out_size[2]; x += kTile) {
        O* at = target + x * s.x;
        for (int64_t row = y; row < stop; ++row, at += s.y) tile(row, x, at);
      }
      r = plane * rows + stop;
    }
    if (streams_) finish_streaming();
  }

 private:
  static constexpr int kRows = 8;  // at hand where channels are not made in the target
  static constexpr int64_t kLine = kCacheLine / static_cast<int64_t>(sizeof(O));
  static constexpr bool kTargetIsPrefetched = kFetchesToWrite && (Sampler::kWeighted || kNearestIsPrefetched);

  // Whether the target may go past the caches: a large one, whose tiles are whole lines.
  static bool can_stream(const WarpCall& call) {
    if (!kCanStream || kTile % kLine != 0 || call.out_size[2] < kTile) return false;
    const ImageStrides& s = call.target_strides;
    const int64_t pixels = call.out_size[0] * call.out_size[1] * call.out_size[2];
    return s.x == 1 && (s.batch | s.channel | s.z | s.y | call.out_size[2]) % kLine == 0 &&
           reinterpret_cast<uintptr_t>(call.target) % kCacheLine == 0 &&
           call.batch * call.channels * pixels * static_cast<int64_t>(sizeof(O)) >= kStreamedBytes;
  }

  // Of the band that begins at y. How the image is turned, a tile in the middle says.
  int64_t rows_of_band(int64_t y) {
    if (followed_rows_ == kMostRowsOfBand) return kMostRowsOfBand;
    TileOf<P> positions[kAxes];
    const int count = static_cast<int>(min<int64_t>(kTile, call_.out_size[2]));
    positions_.tile(z_, y, (call_.out_size[2] - count) / 2, count, positions);
    double turned = 0;
    for (int a = 1; a < kAxes; ++a) turned += abs(static_cast<double>(positions[a].at[count - 1] - positions[a].at[0]));
    return lies_upright(followed_rows_, turned) ? followed_rows_ : kMostRowsOfBand;
  }

  POLYPHASE_BLOCK void tile(int64_t y, int64_t x, O* target) {
    y_ = y;
    x_ = x;
    target_ = target;
    count_ = static_cast<int>(min<int64_t>(kTile, call_.out_size[2] - x));
    in_place_ = may_be_in_place_ && count_ == kTile;
    if (kTargetIsPrefetched && count_ == kTile && !streams_) prefetch_target();
    if constexpr (kInner) {
      if (in_registers_ && tile_in_registers(y, x)) return;
    }
    if (filled_) {
      tile_by_arrays<true>();
    } else {
      tile_by_arrays<false>();
    }
  }

  // What the tile to the right will overwrite, which comes a band of tiles later: time for it to arrive.
  POLYPHASE_BLOCK void prefetch_target() const {
    const ImageStrides& s = call_.target_strides;
    const O* to = target_ + kTile * s.x;
    if (s.x == 1) {
      constexpr int kLines = kTile / kLine > 0 ? static_cast<int>(kTile / kLine) : 1;
      for (int64_t c = 0; c < call_.channels; ++c, to += s.channel) {
        repeat<kLines>([&](auto i) __attribute__((always_inline)) { fetch_to_write(to + i * kLine); });
      }
    } else if (s.channel == 1 && s.x == call_.channels) {
      for (int64_t i = 0; i < kTile * s.x; i += kLine) fetch_to_write(to + i);
    }
  }

  template <bool kFilled>
  POLYPHASE_ROW_LOOP void tile_by_arrays() {
    TileOf<P> positions[kAxes];
    positions_.tile(z_, y_, x_, count_, positions);
    const bool reached = (!kFilled || fill_.enter(positions, positions_)) &&
                         sampler_.taps().make(positions, positions_, call_.padding, call_.image_strides, false);
    if (kFilled && reached) fill_.weigh(sampler_.taps());
    if (!reached) {
      for (int64_t c = 0; c < call_.channels; ++c) {
        V* row = row_of(c);
        for (int i = 0; i < kTile; ++i) row[i] = V{};
        if (kFilled) fill_.apply_outside(c, row);
        if (!in_place_) store(c, row);
      }
    } else if (sampler_.by_rows()) {
      tile_of_rows<kFilled>();
    } else if (sampler_.by_quads()) {
      V* rows[4] = {};
      for (int64_t c = 0; c < call_.channels; ++c) rows[c] = row_of(c);
      sampler_.sample_quads(rows);
      for (int64_t c = 0; c < call_.channels; ++c) finish<kFilled>(c, rows[c]);
    } else if (sampler_.by_pixels()) {
      tile_of_pixels<kFilled>();
    } else {
      for (int64_t from = 0; from < call_.channels; from += kPlanes) {
        const int count = static_cast<int>(min<int64_t>(kPlanes, call_.channels - from));
        V* rows[4] = {};
        for (int p = 0; p < count; ++p) rows[p] = row_of(from + p);
        sampler_.sample_planes(from, count, rows);
        for (int p = 0; p < count; ++p) finish<kFilled>(from + p, rows[p]);
      }
    }
  }

#if defined(POLYPHASE_WARPS_IN_REGISTERS)
#if defined(__AVX2__)
  using Inner = Conditional<__is_same(Filter, Linear), InsideTiles<Prologue, Filter>,
                            Conditional<__is_same(Filter, Cubic), CubicTiles<Prologue>, NearestTiles<Prologue>>>;
#else
  using Inner = InsideTiles<Prologue, Filter>;
#endif
  static constexpr bool kInner = Inner::kExists && kAxes == 2 && (__is_same(P, float) || __is_same(P, V));

  // False where some block has to be done by arrays.
  POLYPHASE_BLOCK bool tile_in_registers(int64_t y, int64_t x) {
    const auto start = positions_.enter_tile(y, x, count_);
    const auto positions = [&](const auto& each) __attribute__((always_inline)) { positions_.each_block(start, each); };
    if constexpr (__is_same(P, float)) {
      if (filled_ && !tile_lies_inside<Filter>(positions, positions_)) return false;
    }
    if constexpr (Epilogue::kIdentity && !Sampler::kWeighted) {
      // A nearest pixel takes so little that what follows would be noticed.
      if (in_place_) return inner_.sample(positions, count_, sampler_.image(), call_.channels, target_, call_.target_strides.channel);
    }
    const int64_t at_once = in_place_ ? call_.channels : kRows, stride = in_place_ ? call_.target_strides.channel : kTile;
    for (int64_t from = 0; from < call_.channels; from += at_once) {
      const int64_t count = min(at_once, call_.channels - from);
      const auto* image = sampler_.image() + from * call_.image_strides.channel;
      if (!inner_.sample(positions, count_, image, count, row_of(from), stride)) return false;
      for (int64_t c = 0; fill_.changes_inner() && c < count; ++c) fill_.apply_inner(from + c, row_of(from + c));
      if (!in_place_) store_rows(from, count);
    }
    return true;
  }
#else
  using Inner = Unused;
  static constexpr bool kInner = false;
  bool tile_in_registers(int64_t, int64_t) { return false; }
#endif

  template <bool kFilled>
  void tile_of_rows() {
    const int64_t together = call_.image_strides.x == 1 ? 1 : call_.channels;
    for (int64_t from = 0; from < call_.channels; from += together) {
      V* rows[4] = {};
      for (int64_t c = 0; c < together; ++c) rows[c] = row_of(from + c);
      sampler_.sample_rows(from, from == 0, rows);
      for (int64_t c = 0; c < together; ++c) finish<kFilled>(from + c, rows[c]);
    }
  }

  template <bool kFilled>
  void tile_of_pixels() {
    for (int64_t from = 0; from < call_.channels; from += Sampler::kChunk) {
      const int64_t end = min<int64_t>(from + Sampler::kChunk, call_.channels);
      if (!kFilled && pixels_in_place(from, end)) continue;
      sampler_.sample_pixels(from, end - from, count_);
      for (int64_t c = from; c < end; c += kRows) {
        const int64_t count = min<int64_t>(kRows, end - c);
        sampler_.take_channels(c - from, count, row_of(c), in_place_ ? call_.target_strides.channel : kTile);
        for (int64_t i = c; i < c + count; ++i) finish<kFilled>(i, row_of(i));
      }
    }
  }

  // Channels `from` to `end` of a tile whose target's lie side by side too. False where they have to be made as rows.
  bool pixels_in_place(int64_t from, int64_t end) {
    if constexpr (Epilogue::kIdentity) {
      const ImageStrides& s = call_.target_strides;
      if (s.channel != 1 || s.x < call_.channels) return false;
      return sampler_.sample_pixels_to(from, end - from, count_, target_ + from, s.x);
    }
    return false;
  }

  // Where channel c of the tile is made: in the target if it can be.
  V* row_of(int64_t c) {
    if constexpr (Epilogue::kIdentity) {
      if (in_place_) return target_ + c * call_.target_strides.channel;
    }
    return rows_[c % kRows];
  }

  template <bool kFilled>
  void finish(int64_t c, V* row) {
    if constexpr (Sampler::kWeighted) {
      bool nan = false;
      for (int i = 0; i < kTile; i += Vec<V>::kLanes) nan |= Vec<V>::load(row + i).has_nan();
      if (__builtin_expect(nan, 0)) sampler_.sample_carefully(c, row);
    }
    if (kFilled) fill_.apply(c, row);
    if (!in_place_) store(c, row);
  }

  // Whole rows of channels from c on.
  POLYPHASE_ROW_LOOP void store_rows(int64_t c, int64_t count) {
    if constexpr (__is_same(V, float) && __is_same(O, uint8_t)) {  // these take little else
      if (call_.target_strides.x == 1 && call_.vector_count + call_.tensor_count == 0) {
        O* to = target_ + c * call_.target_strides.channel;
        for (int64_t i = 0; i < count; ++i) {
          Epilogue::row(rows_[i], to + i * call_.target_strides.channel, count_, RowOperands());
        }
        return;
      }
    }
    if constexpr (Epilogue::kIdentity) {
      if (!streams_) {
        const ImageStrides& s = call_.target_strides;
        for (int64_t i = 0; i < count; ++i) put(rows_[i], target_ + (c + i) * s.channel, s.x);
        return;
      }
    }
    for (int64_t i = 0; i < count; ++i) store(c + i, rows_[i]);
  }

  POLYPHASE_ROW_LOOP void store(int64_t c, const V* row) {
    O* to = target_ + c * call_.target_strides.channel;
    const int64_t stride = call_.target_strides.x;
    if constexpr (Epilogue::kIdentity) {
      if (streams_) return stream(row, to);
      put(row, to, stride);
    } else if (stride == 1 && !streams_) {
      Epilogue::row(row, to, count_, operands(c));
    } else {
      Epilogue::row(row, stored_, count_, operands(c));
      if (streams_) return stream(stored_, to);
      put(stored_, to, stride);
    }
  }

  POLYPHASE_BLOCK void put(const O* row, O* to, int64_t stride) const {
    if constexpr (sizeof(O) == 4 || sizeof(O) == 8) {
      using Element = Conditional<sizeof(O) == 4, float, double>;  // as bits
      using Lanes = Vec<Element>;
      if (stride == 1) {
        const Element* const from = reinterpret_cast<const Element*>(row);
        Element* const out = reinterpret_cast<Element*>(to);
        int i = 0;
        for (; i + Lanes::kLanes <= count_; i += Lanes::kLanes) Lanes::load(from + i).store(out + i);
        if (i < count_) Lanes::load(from + i).store_first(out + i, count_ - i);
        return;
      }
    }
    for (int i = 0; i < count_; ++i) to[i * stride] = row[i];
  }

  POLYPHASE_BLOCK void stream(const O* row, O* to) const {
    for (int64_t i = 0; i < count_; i += kLine) stream_line(row + i, to + i);
  }

  RowOperands operands(int64_t c) {
    RowOperands result = {};
    result.planar = true;
    for (int64_t v = 0; v < call_.vector_count; ++v) {
      const ChannelOperand& vector = call_.vectors[v];
      result.vectors[v] = static_cast<const uint8_t*>(vector.data) + c * vector.element_bytes;
    }
    const int64_t tensors = Formula::kExists ? Formula::kFirstField : call_.tensor_count;  // fields are read elsewhere
    for (int64_t t = 0; t < tensors; ++t) {
      const Operand& tensor = call_.tensors[t];
      const int64_t offset = n_ * tensor.outer_strides[0] + c * tensor.channel_stride + z_ * tensor.z_stride +
                             y_ * tensor.y_stride + x_ * tensor.x_stride;
      const uint8_t* from = static_cast<const uint8_t*>(tensor.data) + offset * tensor.element_bytes;
      uint8_t* row = tensor_rows_ + t * kTile * kMostBytes;
      for (int i = 0; i < count_; ++i) {
        std::memcpy(row + i * tensor.element_bytes, from + i * tensor.x_stride * tensor.element_bytes,
                    static_cast<size_t>(tensor.element_bytes));
      }
      result.tensors[t] = row;
    }
    return result;
  }

  static constexpr int kMostBytes = 16;  // of an element

  const WarpCall& call_;
  Positions<G, P, kAxes, Sampler::kWeighted, Formula> positions_;
  Sampler sampler_;
  Conditional<kInner, Inner, Unused> inner_;
  const bool streams_;                     // the target goes past the caches
  const bool may_be_in_place_;             // channels of whole tiles are made in the target
  const bool in_registers_;                // tiles need no arrays, or most do not
  const int64_t followed_rows_;            // of a band
  const bool filled_;                      // what lies outside has a colour
  int64_t n_ = 0, z_ = 0, y_ = 0, x_ = 0;  // where the tile begins
  int count_ = 0;                          // its pixels
  bool in_place_ = false;
  O* target_ = nullptr;                    // its first channel
  alignas(64) V rows_[kRows][kTile];       // channel c in row c % kRows, where not in place
  alignas(64) O stored_[kTile];
  alignas(64) uint8_t tensor_rows_[kMaxOperands * kTile * kMostBytes];
  TileFill<V, Filter, P, kAxes> fill_;
};

// What threads share of an output that is one row: two tiles and more.
inline int64_t parts_of_row(const WarpCall& call) {
  constexpr int64_t kMostParts = 16;
  return call.threads < 2 ? 1 : max<int64_t>(1, min(kMostParts, call.out_size[2] / (2 * kTile)));
}

template <class Prologue, class Filter, class G, class P, int kAxes, class Epilogue, class Formula = NoFormula>
struct Warp {
  static void run(const KernelCall& any) {
    const WarpCall& call = static_cast<const WarpCall&>(any);
    if constexpr (kWidens) {
      using Floats = Warp<Unchanged<V>, Filter, G, P, kAxes, Epilogue, Formula>;
      if (is_worth_widening(call)) return warp_widened<Floats, typename Prologue::From, V, typename Epilogue::To, G>(call);
    }
    if constexpr (kTurns) {
      const bool in_registers = kAxes == 2 && __is_same(V, float) && Filter::kTaps == 2 && SmallPlanes::hold(call);
      if (!in_registers && is_worth_turning(call) && is_scattered(call)) return ByTurnedImages<V, Rows>::run(call);
    }
    Rows{call, 0}.share(call.batch);
  }

  static constexpr Kernel kernel() { return {run, sizeof(typename Prologue::To), 0}; }

 private:
  using V = typename Prologue::To;
  using Worker = WarpWorker<Prologue, Filter, G, P, kAxes, Epilogue, Formula>;
  static constexpr bool kWidens = Filter::kTaps > 1 && kIsHalf<typename Prologue::From> && __is_same(Prologue, Widened<typename Prologue::From, V>);
  static constexpr bool kTurns = Filter::kTaps > 1 && !(kAxes == 3 && Filter::kTaps == 4) && Prologue::kIdentity && !Formula::kExists && (sizeof(V) == 4 || sizeof(V) == 8);

  // Some images, shared by threads: by parts where an output is one row, else by rows.
  struct Rows {
    const WarpCall& call;
    int64_t first_image;

    bool is_row() const { return call.out_size[0] * call.out_size[1] == 1; }
    // Of an image.
    int64_t count() const { return is_row() ? parts_of_row(call) : call.out_size[0] * call.out_size[1]; }
    void share(int64_t images) { call.parallel(images * count(), call.threads, some, this); }
    static void some(void* context, int64_t begin, int64_t end) { static_cast<const Rows*>(context)->run(begin, end); }
    void run(int64_t begin, int64_t end) const {
      const int64_t before = first_image * count();
      Worker worker(call);
      if (is_row()) return worker.run_parts(before + begin, before + end, count());
      worker.run(before + begin, before + end);
    }
  };

  // Whether neighbouring points are far apart in the image, as a tile in the middle has them. Where they are not, planes are
  // read by whole vectors; volumes never are.
  static bool is_scattered(const WarpCall& call) {
    if (kAxes == 3) return true;
    if (call.affine) return false;
    constexpr P kFar[2] = {4, 1};  // columns, rows
    const int count = static_cast<int>(min<int64_t>(kTile, call.out_size[2]));
    Positions<G, P, kAxes, false, Formula> positions(call);
    TileOf<P> tile[kAxes];
    positions.enter_image(0);
    positions.tile(0, call.out_size[1] / 2, (call.out_size[2] - count) / 2, count, tile);
    for (int a = 0; a < 2; ++a) {
      P moved = 0;
      for (int i = 1; i < count; ++i) moved += abs(tile[a].at[i] - tile[a].at[i - 1]);
      if (!(moved <= kFar[a] * static_cast<P>(count - 1))) return true;
    }
    return count == 1;
  }
};

}  // namespace polyphase
