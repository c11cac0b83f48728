// The horizontal pass over float and double rows, with its tables.
//
// A tap of weight 0 must not touch a value (0 * NaN is NaN). But outputs differ in their number of taps, and the lanes of a
// vector all do the same. So the taps of an output are filled up with weights of 0; a sum that came out NaN is made again,
// with 0 for the values under such weights. Only images that hold NaN or infinity pay for it.
#pragma once

#include "polyphase/core/abi.h"
#include "polyphase/core/buffer.h"
#include "polyphase/core/standard.h"
#include "polyphase/core/unroll.h"
#include "polyphase/resample/ahead.h"
#include "polyphase/resample/float_sums.h"
#include "polyphase/resample/runs.h"
#include "polyphase/resample/wide_pixels.h"
#include "polyphase/simd/vector.h"

namespace polyphase {

// How the horizontal pass reads a row of `channels` interleaved values per pixel: block by block of kLanes outputs.
template <class T>
class FloatLanes {
 public:
  FloatLanes(const Taps& taps, int64_t, int64_t channels, int64_t)
      : channels_(channels), in_length_(taps.in_size * channels), out_length_(taps.out_size * channels) {
    by_runs_ = runs_.build(taps, channels);
    if (by_runs_) return;
    wide_ = wide_pixels_.build(taps, channels);
    if (wide_) return;
    const int64_t count = (out_length_ + V::kLanes - 1) / V::kLanes;
    widest_ = widest_of(taps, 0, taps.out_size - 1);
    blocks_.reserve(count);
    index_.reserve(count * V::kLanes);
    weights_.reserve(count * V::kLanes * widest_);
    for (int64_t b = 0; b < count; ++b) {
      add_block(taps, b * V::kLanes);
      const bool alike = (b == 0 || all_taps_ == blocks_[b].taps) && blocks_[b].kind != kAnywhere;
      all_taps_ = alike ? blocks_[b].taps : 0;
    }
    make_alike();
    // Where windows overlap much, `run_sum` would sum what lies in two of them twice.
    sums_rows_ = kSumsWindows && all_taps_ >= kLeastSummed && all_taps_ <= kMostSummed && readable_length_ == 0 &&
                 in_length_ * 4 >= out_length_ * 5;
    for (const Block& block : blocks_) sums_rows_ = sums_rows_ && block.kind == kOneWindow;
  }

  int64_t channels() const { return channels_; }
  // A row to be read must have this many elements, whatever they are.
  int64_t readable_length() const { return readable_length_; }

  size_t bytes() const {
    return sizeof(*this) + runs_.bytes() + wide_pixels_.bytes() + blocks_.bytes() + weights_.bytes() + index_.bytes();
  }

  bool fetches() const { return !wide_; }

  // Whether there is `run_sum`, and it is better than to sum rows before `run`.
  bool sums_rows() const { return wide_ ? wide_pixels_.sums_rows() : sums_rows_; }
  // Whether that is so even where `run` on every row, and then the sums, would be less arithmetic.
  bool sums_all() const { return wide_ && wide_pixels_.sums_all(); }

  POLYPHASE_ROW_LOOP void run(const T* in, T* out, const Ahead* ahead) const {
    if (by_runs_) return runs_.run(in, out, ahead);
    if (wide_) return wide_pixels_.run(in, out);
    with_constant<2, kMostUnrolled>(all_taps_, [&](auto taps) { run_blocks(in, sum_blocks<taps, const T*>, out, ahead); });
  }

  // `run` of the `vertical` sum of rows: the same bits, but the sum is never a row in memory.
  void run_sum(const T* const* rows, const T* weights, int count, T* out, [[maybe_unused]] const Ahead* ahead) const {
    const Rows summands = {rows, weights, count};
    if (wide_) return wide_pixels_.run_sum(summands, out);
    if constexpr (kSumsWindows) {
      if (all_taps_ == 2 && count == 2) return run_blocks(TwoRows(summands), sum_blocks<2, TwoRows>, out, ahead);
      with_constant<kLeastSummed, kMostSummed>(all_taps_, [&](auto taps) {
        if constexpr (taps != 0) run_blocks(summands, sum_blocks<taps, Rows>, out, ahead);
      });
    }
  }

 private:
  using V = Vec<T>;
  using Rows = Summands<T>;
  // Short vectors gain little by it, in few cases, and it takes time to build.
  static constexpr bool kSumsWindows = V::kPicks && sizeof(V) > 16;
  static constexpr int kMostUnrolled = 6;                  // taps
  static constexpr int kLeastSummed = 2, kMostSummed = 4;  // taps, for `run_sum`
  static constexpr int64_t kBlocksPerStep = 64 / V::kLanes;  // of `Fetching`

  enum Kind : int32_t {
    kOneWindow,    // all taps of all lanes lie in one window
    kWindowEach,   // tap k of all lanes lies in the window that is k pixels further on
    kAnywhere,     // every tap of every lane has an index of its own
  };
  struct Block {
    Kind kind;
    int32_t taps;
    int32_t base;      // where the window begins; 0 for kAnywhere
    uint32_t indices;  // in index_: kLanes of them, for kAnywhere taps * kLanes
    uint32_t weights;  // in weights_: taps * kLanes
  };

  // The pixels a block's lanes read, each as one interval.
  struct Extent {
    int64_t widest = 0;   // pixels from the first to the last tap of a lane
    int32_t most = 0;     // taps of a lane
    int32_t first = INT32_MAX;
  };

  static Extent extent(const Taps& taps, int64_t first_pixel, int64_t last_pixel) {
    Extent e;
    for (int64_t x = first_pixel; x <= last_pixel; ++x) {
      const int32_t n = taps.begin[x + 1] - taps.begin[x];
      if (n == 0) continue;
      const int32_t first = taps.index[taps.begin[x]];
      e.widest = max(e.widest, width_of(taps, x));
      e.most = max(e.most, n);
      e.first = min(e.first, first);
    }
    return e;
  }

  void add_block(const Taps& taps, int64_t from) {
    const int64_t to = min<int64_t>(from + V::kLanes, out_length_);
    Extent e = extent(taps, from / channels_, (to - 1) / channels_);
    const bool near = e.most > 0 && e.widest <= 2 * e.most;
    if (widest_ <= kMostUnrolled) e.widest = widest_;  // for all blocks to have the same loop
    if (!near || !add_windows(taps, from, to, e)) add_anywhere(taps, from, to, e);
  }

  // Every lane's taps as `widest` neighbouring pixels. False where the lanes lie too far apart.
  bool add_windows(const Taps& taps, int64_t from, int64_t to, const Extent& e) {
    const int64_t furthest = taps.in_size - e.widest;  // no lane reads beyond the end, not even under a zero weight
    int64_t start[V::kLanes];
    int64_t low = INT64_MAX, high = 0;
    Place place(from, channels_);
    for (int64_t l = 0; l < to - from; ++l, place.next()) {
      const int32_t begin = taps.begin[place.x];
      const int64_t pixel = begin == taps.begin[place.x + 1] ? e.first : taps.index[begin];
      start[l] = min(pixel, furthest);
      low = min(low, start[l] * channels_ + place.c);
      high = max(high, start[l] * channels_ + place.c);
    }
    if (high - low >= V::kWindow) return false;
    const int64_t reach = (e.widest - 1) * channels_;
    const Kind kind = high - low + reach < V::kWindow ? kOneWindow : kWindowEach;
    const int64_t needs = V::kWindow + (kind == kWindowEach ? reach : 0);
    if (needs > in_length_) readable_length_ = max(readable_length_, needs);
    const int64_t base = max<int64_t>(0, min(low, in_length_ - needs));

    Block& block = new_block(kind, static_cast<int32_t>(e.widest), base);
    index_.resize(index_.size() + V::kLanes);
    int32_t* index = index_.data() + block.indices;
    weights_.resize(weights_.size() + block.taps * V::kLanes);
    T* weights = weights_.data() + block.weights;
    place = Place(from, channels_);
    for (int64_t l = 0; l < to - from; ++l, place.next()) {
      index[l] = V::place(static_cast<int32_t>(start[l] * channels_ + place.c - base));
      for (int32_t t = taps.begin[place.x]; t < taps.begin[place.x + 1]; ++t) {
        weights[(taps.index[t] - start[l]) * V::kLanes + l] = static_cast<T>(taps.exact[t]);
      }
    }
    return true;
  }

  void add_anywhere(const Taps& taps, int64_t from, int64_t to, const Extent& e) {
    Block& block = new_block(kAnywhere, e.most, 0);
    index_.resize(index_.size() + block.taps * V::kLanes);
    weights_.resize(weights_.size() + block.taps * V::kLanes);
    Place place(from, channels_);
    for (int64_t l = 0; l < to - from; ++l, place.next()) {
      const int32_t begin = taps.begin[place.x];
      for (int32_t t = begin; t < taps.begin[place.x + 1]; ++t) {
        const int64_t slot = (t - begin) * V::kLanes + l;
        index_[block.indices + slot] = static_cast<int32_t>(taps.index[t] * channels_ + place.c);
        weights_[block.weights + slot] = static_cast<T>(taps.exact[t]);
      }
    }
  }

  // Where most blocks are kWindowEach, others become so too if they can: the processor cannot predict a branch that goes now
  // this way, now that.
  void make_alike() {
    int64_t with_each = 0;
    for (const Block& block : blocks_) with_each += block.kind == kWindowEach;
    if (2 * with_each <= blocks_.size()) return;
    for (Block& block : blocks_) {
      const int64_t end = block.base + V::kWindow + (block.taps - 1) * channels_;
      if (block.kind == kOneWindow && end <= in_length_) block.kind = kWindowEach;
    }
  }

  Block& new_block(Kind kind, int32_t taps, int64_t base) {
    blocks_.push_back({kind, taps, static_cast<int32_t>(base), static_cast<uint32_t>(index_.size()),
                       static_cast<uint32_t>(weights_.size())});
    return blocks_.back();
  }

  // Two rows to be summed, for which pointers and weights can stay in registers.
  struct TwoRows {
    explicit TwoRows(const Rows& rows)
        : all(rows), p(rows.rows[0]), q(rows.rows[1]), p_weight(V::broadcast(rows.weights[0])),
          q_weight(V::broadcast(rows.weights[1])) {}
    Rows all;
    const T *p, *q;
    V p_weight, q_weight;
  };
  static const Rows& any_number(const TwoRows& rows) { return rows.all; }
  template <class Source>
  static const Source& any_number(const Source& source) {
    return source;
  }

  // Copies of what a row reads: a value that is stored may alias members, so these would be read again after every store.
  struct Tables {
    const Block* blocks;
    const int32_t* index;
    const T* weights;
    int32_t step;  // from a tap to the next
  };
  Tables tables() const { return {blocks_.data(), index_.data(), weights_.data(), static_cast<int32_t>(channels_)}; }

  // Sums the blocks of a row that are whole. Source: the row they read, or the rows whose sum they read (`Rows`, `TwoRows`).
  // Returns a vector that has a NaN if any block has one: a row is checked once.
  template <class Source>
  using SumBlocks = V (*)(const Tables& tables, const Source& source, T* out, int64_t count, Fetching& fetching);

  template <class Source>
  POLYPHASE_ROW_LOOP void run_blocks(const Source& source, SumBlocks<Source> sum_blocks, T* out,
                                     const Ahead* ahead) const {
    const int64_t whole = out_length_ / V::kLanes;
    const Tables read = tables();
    Fetching fetching(ahead, whole / kBlocksPerStep + 1);
    if (__builtin_expect(sum_blocks(read, source, out, whole, fetching).has_nan(), 0)) {
      for (int64_t b = 0; b < whole; ++b) sum_of_any(read, b, any_number(source)).store(out + b * V::kLanes);
    }
    const int rest = static_cast<int>(out_length_ % V::kLanes);
    if (rest != 0) sum_of_any(read, whole, any_number(source)).store_first(out + whole * V::kLanes, rest);
  }

  // kTaps: taps of an output, 0 for any. `fetching.step` is a call, across which nothing stays in vector registers; so what
  // blocks read is loaded after it.
  template <int kTaps, class Source>
  static V sum_blocks(const Tables& shared, const Source& given, T* out, int64_t count, Fetching& fetching) {
    V all = V::zero();
    for (int64_t first = 0; first < count; first += kBlocksPerStep) {
      fetching.step();
      const Tables tables = shared;
      const Source source = given;
      const int64_t end = min(count, first + kBlocksPerStep);
      V some = V::zero();
      for (int64_t b = first; b < end; ++b) {
        const V result = sum<kTaps, false>(tables, b, source);
        result.store(out + b * V::kLanes);
        fetch_target(out + b * V::kLanes);
        some = some.plus(result);
      }
      all = all.plus(some);
    }
    return all;
  }

  template <class Source>
  POLYPHASE_ROW_LOOP static V sum_of_any(const Tables& tables, int64_t b, const Source& source) {
    const V result = sum<0, false>(tables, b, source);
    return __builtin_expect(result.has_nan(), 0) ? sum_without_zeros(tables, b, source) : result;
  }
  template <class Source>
  POLYPHASE_ROW_LOOP static V sum_without_zeros(const Tables& tables, int64_t b, const Source& source) {
    return sum<0, true>(tables, b, source);
  }

  template <int kTaps, bool kSkipZeros>
  POLYPHASE_BLOCK static V sum(const Tables& tables, int64_t b, const T* in) {
    const Block& block = tables.blocks[b];
    const int taps = kTaps == 0 ? block.taps : kTaps;
    const T* weights = tables.weights + (kTaps == 0 ? block.weights : b * kTaps * V::kLanes);
    const int32_t* index = tables.index + (kTaps == 0 ? block.indices : b * V::kLanes);
    const T* window = in + block.base;
    V total = V::zero();
    const auto add = [&](V value, int k) {
      const V weight = V::load(weights + k * V::kLanes);
      total = multiply_add(kSkipZeros ? value.where_nonzero(weight) : value, weight, total);
    };
    switch (block.kind) {
      case kOneWindow: {
        typename V::Index i = V::load_index(index);
#pragma GCC unroll 6
        for (int k = 0; k < taps; ++k, i = V::further(i, tables.step)) add(V::pick(window, i), k);
        break;
      }
      case kWindowEach: {
        const typename V::Index i = V::load_index(index);
#pragma GCC unroll 6
        for (int k = 0; k < taps; ++k, window += tables.step) add(V::pick(window, i), k);
        break;
      }
      case kAnywhere:
        if constexpr (kTaps != 0) break;
        for (int k = 0; k < taps; ++k) add(V::gather(in, V::load_index(index + k * V::kLanes)), k);
        break;
    }
    return total;
  }

  // The sum of a window of each row, as two vectors.
  POLYPHASE_BLOCK static void sum_windows(const Rows& rows, int64_t base, V& low, V& high) {
    low = V::zero(), high = low;
    for (int k = 0; k < rows.count; ++k) add_window(rows.rows[k] + base, V::broadcast(rows.weights[k]), low, high);
  }
  POLYPHASE_BLOCK static void sum_windows(const TwoRows& rows, int64_t base, V& low, V& high) {
    low = V::zero(), high = low;
    add_window(rows.p + base, rows.p_weight, low, high);
    add_window(rows.q + base, rows.q_weight, low, high);
  }
  POLYPHASE_BLOCK static void add_window(const T* window, V weight, V& low, V& high) {
    low = multiply_add(V::load(window), weight, low);
    high = multiply_add(V::load(window + V::kLanes), weight, high);
  }

  template <int kTaps, bool kSkipZeros, class Source>
  POLYPHASE_BLOCK static V sum(const Tables& tables, int64_t b, const Source& rows) {
    const Block& block = tables.blocks[b];
    V low, high;
    sum_windows(rows, block.base, low, high);
    const T* weights = tables.weights + (kTaps == 0 ? block.weights : b * kTaps * V::kLanes);
    typename V::Index i = V::load_index(tables.index + (kTaps == 0 ? block.indices : b * V::kLanes));
    V total = V::zero();
#pragma GCC unroll 4
    for (int k = 0; k < (kTaps == 0 ? block.taps : kTaps); ++k, i = V::further(i, tables.step), weights += V::kLanes) {
      const V value = V::pick(low, high, i), weight = V::load(weights);
      total = multiply_add(kSkipZeros ? value.where_nonzero(weight) : value, weight, total);
    }
    return total;
  }

  int64_t channels_;
  int64_t in_length_;
  int64_t out_length_;
  int64_t widest_ = 0;  // pixels from the first to the last tap of an output
  int64_t readable_length_ = 0;
  bool by_runs_ = false;
  bool wide_ = false;
  bool sums_rows_ = false;
  Runs<T> runs_;
  WidePixels<T> wide_pixels_;
  int all_taps_ = 0;  // of every block, each in windows, or 0
  Buffer<Block> blocks_;
  Buffer<int32_t> index_;  // places from the window's beginning; kAnywhere: elements
  Buffer<T> weights_;
};

template <class T>
struct FloatSampler {
  using Value = T;
  using Lanes = FloatLanes<T>;
  static constexpr TapArithmetic kArithmetic = sizeof(T) == 8 ? TapArithmetic::kFloat64 : TapArithmetic::kFloat32;
  static constexpr TapArithmetic kFindsNearest = kArithmetic;
  static constexpr bool kSums = true, kAnyOrder = true;

  static void run_sum(const Lanes& lanes, const T* const* rows, const void* packed, int taps, T* out, const Ahead* ahead) {
    lanes.run_sum(rows, static_cast<const T*>(packed), taps, out, ahead);
  }

  static void pack(const Taps& all, int64_t first, int taps, void* packed) {
    for (int t = 0; t < taps; ++t) static_cast<T*>(packed)[t] = static_cast<T>(all.exact[first + t]);
  }
  static void sum(const T* const* rows, const void* packed, int taps, int, T* out, int64_t length, const Ahead* ahead) {
    vertical(rows, static_cast<const T*>(packed), taps, out, length, ahead);
  }
};

// Integers that are summed as floats. Eager has no weights for them, so that these are as exact as can be.
template <class T>
struct IntegerSampler : FloatSampler<T> {
  static constexpr TapArithmetic kArithmetic = TapArithmetic::kFloat64;
  static constexpr TapArithmetic kFindsNearest = TapArithmetic::kFloat32;
};

}  // namespace polyphase
