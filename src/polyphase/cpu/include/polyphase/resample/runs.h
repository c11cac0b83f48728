// The horizontal pass over float rows that shrink to less than half: outputs lie too far apart to be found in a window, but
// the taps of each are neighbours, and four floats are one load. Where vectors are no longer than that (NEON), it is also
// quicker than windows for most rows.
#pragma once

#include "polyphase/core/abi.h"
#include "polyphase/core/buffer.h"
#include "polyphase/core/standard.h"
#include "polyphase/core/unroll.h"
#include "polyphase/resample/ahead.h"
#include "polyphase/simd/vector.h"

namespace polyphase {

// For what has no such pass.
template <class T>
class Runs {
 public:
  bool build(const Taps&, int64_t) { return false; }
  size_t bytes() const { return 0; }
  void run(const T*, T*, const Ahead*) const {}
};

#if defined(__AVX512F__) || defined(POLYPHASE_NEON)

// Of a plane, four taps of as many outputs as a vector takes are loaded and transposed. Of interleaved pixels, a block
// is four outputs, each in four lanes.
template <>
class Runs<float> {
 public:
  // False where this cannot be done, or another way is better.
  bool build(const Taps& taps, int64_t channels) {
    channels_ = channels;
    out_size_ = taps.out_size;
    const int64_t widest = widest_of(taps, 0, taps.out_size - 1);
    if (!pays(taps, widest) || !are_neighbours(taps)) return false;
    length_ = filled_up(widest);
    if (length_ == 0 || length_ > taps.in_size) return false;
    const int64_t count = blocks();
    starts_.resize(count * outputs());
    weights_.resize(count * outputs() * length_);
    for (int64_t x = 0; x < out_size_; ++x) add_output(taps, x);
    for (int64_t x = out_size_; x < starts_.size(); ++x) starts_[x] = starts_[out_size_ - 1];
    for (int64_t b = 0; b < count; ++b) {
      if (!add_block(b, taps.in_size * channels)) return false;
    }
    return true;
  }

  size_t bytes() const { return starts_.bytes() + weights_.bytes() + shifts_.bytes(); }

  POLYPHASE_ROW_LOOP void run(const float* in, float* out, const Ahead* ahead) const {
    const bool few = kUnrolls && length_ == (channels_ == 1 ? 4 : kTapsTogether);  // then there is no loop over taps
    if (channels_ == 1) {
      few ? run_blocks<1, kUnrolls ? 4 : 0>(in, out, ahead) : run_blocks<1, 0>(in, out, ahead);
    } else {
      with_constant<3, kUnrolls ? 4 : 0>(static_cast<int>(channels_), [&](auto channels) {
        constexpr int kFew = channels == 0 ? 0 : kTapsTogether;
        few ? run_blocks<channels, kFew>(in, out, ahead) : run_blocks<channels, 0>(in, out, ahead);
      });
    }
  }

 private:
  using V = Vec<float>;
  static constexpr int kPixels = 4;  // of a block
#if defined(POLYPHASE_NEON)
  static constexpr bool kUnrolls = true;  // loops for three and four channels, and for few taps
  static constexpr int kTapsTogether = 2;  // of pixels
#else
  static constexpr bool kUnrolls = false;
  static constexpr int kTapsTogether = 1;
#endif

  // Copies of what a row reads: a value that is stored may alias members, so these would be read again after every store.
  struct Tables {
    const int32_t* starts;
    const float* weights;
    const int32_t* shifts;
    int64_t length, channels;
  };

#if defined(__AVX512F__)
  // Windows are better where a row shrinks less.
  bool pays(const Taps& taps, int64_t) const { return channels_ <= 4 && taps.in_size > 2 * taps.out_size; }
#else
  // A pixel is one load here, and two and a pick by windows. But a pixel of two channels fills half a load.
  bool pays(const Taps& taps, int64_t widest) const {
    const bool far = taps.in_size > 2 * taps.out_size;
    return channels_ == 1 ? far : channels_ == 2 ? far || widest > 6 : channels_ <= 4;
  }
#endif

  // Taps are read so many at a time.
  int64_t filled_up(int64_t taps) const {
    const int64_t together = channels_ == 1 ? 4 : kTapsTogether;
    return (taps + together - 1) / together * together;
  }

  int64_t outputs() const { return channels_ == 1 ? V::kLanes : kPixels; }  // of a block

  static bool are_neighbours(const Taps& taps) {
    for (int64_t x = 0; x < taps.out_size; ++x) {
      if (width_of(taps, x) != taps.begin[x + 1] - taps.begin[x]) return false;
    }
    return true;
  }

  void add_output(const Taps& taps, int64_t x) {
    const int32_t begin = taps.begin[x], end = taps.begin[x + 1];
    if (begin == end) return;  // a border, whatever it reads
    const int64_t start = min<int64_t>(taps.index[begin], taps.in_size - length_);
    starts_[x] = static_cast<int32_t>(start * channels_);
    float* weights = weights_.data() + x / outputs() * length_ * outputs() + x % outputs();
    for (int32_t t = begin; t < end; ++t) {
      weights[(taps.index[t] - start) * outputs()] = static_cast<float>(taps.exact[t]);
    }
  }

  // Four floats are loaded for a pixel. Where that would go beyond the row's end, the loads of a block begin earlier, by a
  // shift with which they end with the pixel's last channel.
  bool add_block(int64_t b, int64_t in_length) {
    if (channels_ == 1) return true;
    int32_t* starts = starts_.data() + kPixels * b;
    int64_t first = INT64_MAX, last = 0;
    for (int i = 0; i < kPixels; ++i) {
      first = min<int64_t>(first, starts[i]);
      last = max<int64_t>(last, starts[i]);
    }
    const bool beyond = last + (length_ - 1) * channels_ + 4 > in_length;
    const int32_t shift = beyond ? static_cast<int32_t>(4 - channels_) : 0;
    for (int i = 0; i < kPixels; ++i) starts[i] -= shift;
    shifts_.push_back(shift);
    return first >= shift;
  }

  // For so many channels and taps, 0 for any.
  template <int kChannels, int kTaps>
  POLYPHASE_BLOCK Tables tables() const {
    return {starts_.data(), weights_.data(), shifts_.data(), kTaps == 0 ? length_ : kTaps,
            kChannels == 0 ? channels_ : kChannels};
  }
  int64_t blocks() const { return (out_size_ + outputs() - 1) / outputs(); }

  template <int kChannels, int kTaps>
  POLYPHASE_BLOCK void run_blocks(const float* in, float* out, const Ahead* ahead) const {
    constexpr bool kPlane = kChannels == 1;
    constexpr int64_t kBlocksPerStep = kPlane && V::kLanes == 4 ? 8 : 4;  // of `Fetching`
    const Tables read = tables<kChannels, kTaps>();
    const int64_t step = (kPlane ? V::kLanes : kPixels) * read.channels, length = out_size_ * read.channels;
    const int64_t count = blocks();
    Fetching fetching(ahead, count / kBlocksPerStep + 1);
    V all = V::zero();  // has a NaN if any block has one: a row is checked once
    for (int64_t first = 0; first < count; first += kBlocksPerStep) {
      fetching.step();
      const int64_t end = min(count, first + kBlocksPerStep);
      V some = V::zero();  // in a register, as it does not live on across a call
      for (int64_t b = first; b < end; ++b) {
        const auto result = block<kPlane, false>(read, b, in);
        some = some.plus(store(read, b, result, out + b * step, length - b * step));
      }
      all = all.plus(some);
    }
    if (__builtin_expect(all.has_nan(), 0)) run_without_zeros<kPlane>(in, out);
  }

  template <bool kPlane>
  POLYPHASE_ROW_LOOP void run_without_zeros(const float* in, float* out) const {
    const Tables read = tables<kPlane, 0>();
    const int64_t step = outputs() * channels_, length = out_size_ * channels_;
    for (int64_t b = 0; b < blocks(); ++b) {
      store(read, b, block<kPlane, true>(read, b, in), out + b * step, length - b * step);
    }
  }

  template <bool kPlane, bool kSkipZeros>
  POLYPHASE_BLOCK static auto block(const Tables& tables, int64_t b, const float* in) {
    if constexpr (kPlane) {
      return of_plane<kSkipZeros>(tables, b, in);
    } else {
      return of_pixels<kSkipZeros>(tables, b, in);
    }
  }

  template <bool kSkipZeros>
  POLYPHASE_BLOCK static void add(V value, V weight, V& total) {
    total = multiply_add(kSkipZeros ? value.where_nonzero(weight) : value, weight, total);
  }

  template <bool kSkipZeros>
  POLYPHASE_BLOCK static V of_plane(const Tables& tables, int64_t b, const float* in) {
    const int32_t* at = tables.starts + V::kLanes * b;
    const float* weights = tables.weights + V::kLanes * b * tables.length;
    V total = V::zero();
    for (int64_t k = 0; k < tables.length; k += 4, in += 4, weights += 4 * V::kLanes) {
      V p = V::load_fours(in, at, 4), q = V::load_fours(in, at + 1, 4);
      V r = V::load_fours(in, at + 2, 4), s = V::load_fours(in, at + 3, 4);
      transpose_fours(p, q, r, s);
      add<kSkipZeros>(p, V::load(weights), total);
      add<kSkipZeros>(q, V::load(weights + V::kLanes), total);
      add<kSkipZeros>(r, V::load(weights + 2 * V::kLanes), total);
      add<kSkipZeros>(s, V::load(weights + 3 * V::kLanes), total);
    }
    return total;
  }

#if defined(__AVX512F__)
  // By channels (from 2) and whether there is a shift: permutations that put four pixels side by side, each of which lies at
  // the beginning of four lanes or, shifted, at their end.
  alignas(64) static constexpr int32_t kDense[3][2][V::kLanes] = {
      {{0, 1, 4, 5, 8, 9, 12, 13}, {2, 3, 6, 7, 10, 11, 14, 15}},
      {{0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14}, {1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15}},
      {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {}},
  };

  template <bool kSkipZeros>
  POLYPHASE_BLOCK static V of_pixels(const Tables& tables, int64_t b, const float* in) {
    const int32_t* at = tables.starts + 4 * b;
    const float* weights = tables.weights + 4 * b * tables.length;
    V total = V::zero();
    for (int64_t k = 0; k < tables.length; ++k, in += tables.channels, weights += 4) {
      add<kSkipZeros>(V::load_fours(in, at, 1), V::load_four_times(weights), total);
    }
    return total;
  }

  // Stores a block where so many floats are left of the row. Returns a vector that has a NaN if the block has one.
  POLYPHASE_BLOCK static V store(const Tables& tables, int64_t b, V result, float* out, int64_t left) {
    if (tables.channels != 1) {
      result = result.permuted(V::load_index(kDense[tables.channels - 2][tables.shifts[b] != 0]));
    }
    const int64_t step = tables.channels == 1 ? V::kLanes : kPixels * tables.channels;
    result.store_first(out, static_cast<int>(min(step, left)));
    return result;
  }
#else
  // A vector each.
  struct Pixels {
    V p, q, r, s;
  };

  template <bool kSkipZeros>
  POLYPHASE_BLOCK static Pixels of_pixels(const Tables& tables, int64_t b, const float* in) {
    const int32_t* at = tables.starts + 4 * b;
    const float* weights = tables.weights + 4 * b * tables.length;
    const float *p = in + at[0], *q = in + at[1], *r = in + at[2], *s = in + at[3];
    Pixels totals = {V::zero(), V::zero(), V::zero(), V::zero()};
    const int64_t step = tables.channels;
    for (int64_t k = 0; k < tables.length; k += 2, weights += 8) {
      const V one = V::load(weights), other = V::load(weights + 4);
      add_pixel<kSkipZeros, 0>(V::load(p), one, totals.p);
      add_pixel<kSkipZeros, 1>(V::load(q), one, totals.q);
      add_pixel<kSkipZeros, 2>(V::load(r), one, totals.r);
      add_pixel<kSkipZeros, 3>(V::load(s), one, totals.s);
      p += step, q += step, r += step, s += step;
      add_pixel<kSkipZeros, 0>(V::load(p), other, totals.p);
      add_pixel<kSkipZeros, 1>(V::load(q), other, totals.q);
      add_pixel<kSkipZeros, 2>(V::load(r), other, totals.r);
      add_pixel<kSkipZeros, 3>(V::load(s), other, totals.s);
      p += step, q += step, r += step, s += step;
    }
    return totals;
  }

  template <bool kSkipZeros, int kLane>
  POLYPHASE_BLOCK static void add_pixel(V value, V weights, V& total) {
    const V counted = kSkipZeros ? value.where_nonzero(V::broadcast(weights.v[kLane])) : value;
    total.v = neon::multiply_add_lane<kLane>(counted.v, weights.v, total.v);
  }

  POLYPHASE_BLOCK static V store(const Tables&, int64_t, V result, float* out, int64_t left) {
    if (left >= V::kLanes) {
      result.store(out);
    } else {
      float lanes[V::kLanes];
      result.store(lanes);
      for (int64_t i = 0; i < left; ++i) out[i] = lanes[i];
    }
    return result;
  }

  POLYPHASE_BLOCK static V store(const Tables& tables, int64_t b, Pixels four, float* out, int64_t left) {
    auto [p, q, r, s] = four;
    const int64_t channels = tables.channels;
    if (tables.shifts[b] != 0) {
      const auto turn = [&](V& v) { v.v = channels == 3 ? neon::rotated<1>(v.v) : neon::rotated<2>(v.v); };
      turn(p), turn(q), turn(r), turn(s);
    }
    if (channels == 3) {
      p.v = neon::with_lane<3, 0>(p.v, q.v);
      q.v = neon::with_low_half(neon::rotated<1>(q.v), r.v);
      r.v = neon::with_lane<0, 2>(neon::rotated<3>(s.v), r.v);
    } else if (channels == 2) {
      p.v = neon::with_low_half(p.v, q.v);
      q.v = neon::with_low_half(r.v, s.v);
    }
    if (left < 4 * channels) {  // not by memcpy, a call across which vectors would be kept in memory
      float dense[16];
      p.store(dense), q.store(dense + 4), r.store(dense + 8), s.store(dense + 12);
      for (int64_t i = 0; i < left; ++i) out[i] = dense[i];
    } else {
      p.store(out), q.store(out + 4);
      if (channels >= 3) r.store(out + 8);
      if (channels >= 4) s.store(out + 12);
    }
    return channels == 2 ? p.plus(q) : channels == 3 ? p.plus(q).plus(r) : p.plus(q).plus(r.plus(s));
  }
#endif

  int64_t channels_ = 1;
  int64_t out_size_ = 0;
  int64_t length_ = 0;       // taps of an output, filled up with zeros
  Buffer<int32_t> starts_;   // of an output's taps, in elements
  Buffer<float> weights_;    // per block, then per tap: one for each output
  Buffer<int32_t> shifts_;   // per block of pixels: the lanes of a load before the pixel
};

#endif

}  // namespace polyphase
