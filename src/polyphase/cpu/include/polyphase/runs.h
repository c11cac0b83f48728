// The horizontal pass over float rows that shrink to less than half: outputs lie too far apart to be found in a window, but
// the taps of each are neighbours, and four floats are one load. Where vectors are no longer than that (NEON), it is also
// quicker than windows for most rows.
#pragma once

#include "polyphase/abi.h"
#include "polyphase/ahead.h"
#include "polyphase/buffer.h"
#include "polyphase/standard.h"
#include "polyphase/unroll.h"
#include "polyphase/vector.h"

namespace polyphase {

// Where there is no such pass.
template <class T>
class Runs {
 public:
  bool build(const Taps&, int64_t) { return false; }
  size_t bytes() const { return 0; }
  void run(const T*, T*, const Ahead*) const {}
};

#if defined(__AVX512F__) || defined(POLYPHASE_NEON)

// Of a plane, four taps of as many outputs as a vector takes are loaded and transposed. Of interleaved pixels, each four
// lanes are a pixel.
template <>
class Runs<float> {
 public:
  // False where this is not the way.
  bool build(const Taps& taps, int64_t channels) {
    channels_ = channels;
    out_size_ = taps.out_size;
    const int64_t widest = widest_of(taps, 0, taps.out_size - 1);
    if (!pays(taps, widest) || !are_neighbours(taps)) return false;
    length_ = filled_up(widest);
    if (length_ == 0 || length_ > taps.in_size) return false;
    const int64_t count = (out_size_ + outputs() - 1) / outputs();
    starts_.resize(count * outputs());
    weights_.reserve(count * outputs() * length_ + V::kLanes);  // read four at a time
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
    channels_ == 1 ? run_blocks<true>(in, out, ahead) : run_blocks<false>(in, out, ahead);
  }

 private:
  using V = Vec<float>;
  static constexpr int kPixels = V::kLanes / 4;              // of a vector
  static constexpr int64_t kBlocksPerStep = V::kLanes == 16 ? 4 : 8;  // of `Fetching`

  // What a row reads of this, read once: for all the compiler knows, a value that is stored may be any of it.
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
  // A pixel here is one load, where a window takes two and picking. But a pixel of three is stored over the one before:
  // with two taps, that took 1.2 to 1.4 times as long as windows.
  bool pays(const Taps& taps, int64_t widest) const {
    const bool far = taps.in_size > 2 * taps.out_size;
    return channels_ <= 2 ? far : channels_ == 3 ? widest > 2 : channels_ == 4;
  }
#endif

  // Taps are read four at a time; of a vector that is one pixel, two where there are no more.
  int64_t filled_up(int64_t taps) const {
    if (channels_ > 1 && kPixels > 1) return taps;
    return channels_ > 1 && taps > 0 && taps <= 2 ? 2 : (taps + 3) / 4 * 4;
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
      weights[(taps.index[t] - start) * outputs()] = static_cast<float>(taps.weight[t]);
    }
  }

  // Four floats from a pixel on must not be read beyond the end of the row; then they are those up to the pixel's last.
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

  template <bool kPlane>
  POLYPHASE_BLOCK void run_blocks(const float* in, float* out, const Ahead* ahead) const {
    const Tables tables = {starts_.data(), weights_.data(), shifts_.data(), length_, channels_};
    const int64_t step = outputs() * channels_, length = out_size_ * channels_, count = (length + step - 1) / step;
    Fetching fetching(ahead, count / kBlocksPerStep + 1);
    V all = V::zero();  // what a row holds is asked once: if any block is NaN, so is this
    for (int64_t first = 0; first < count; first += kBlocksPerStep) {
      fetching.step();
      const int64_t end = min(count, first + kBlocksPerStep);
      V some = V::zero();  // in a register, which what lives on while rows are fetched is not
      for (int64_t b = first; b < end; ++b) {
        const V result = kPlane ? of_plane<false>(tables, b, in) : of_pixels<false>(tables, b, in);
        store<kPlane>(tables, b, result, out + b * step, length - b * step);
        some = some.plus(result);
      }
      all = all.plus(some);
    }
    if (__builtin_expect(all.has_nan(), 0)) {
      for (int64_t b = 0; b < count; ++b) {
        store<kPlane>(tables, b, without_zeros(tables, b, in), out + b * step, length - b * step);
      }
    }
  }

  POLYPHASE_ROW_LOOP static V without_zeros(const Tables& tables, int64_t b, const float* in) {
    return tables.channels == 1 ? of_plane<true>(tables, b, in) : of_pixels<true>(tables, b, in);
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
  // The lanes of four pixels one after the other, which lie at the beginning of four lanes each, or at the end.
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

  // So many floats are left of the row.
  template <bool kPlane>
  POLYPHASE_BLOCK static void store(const Tables& tables, int64_t b, V result, float* out, int64_t left) {
    if (!kPlane) result = result.permuted(V::load_index(kDense[tables.channels - 2][tables.shifts[b] != 0]));
    const int64_t step = kPlane ? V::kLanes : kPixels * tables.channels;
    result.store_first(out, static_cast<int>(min(step, left)));
  }
#else
  template <bool kSkipZeros>
  POLYPHASE_BLOCK static V of_pixels(const Tables& tables, int64_t b, const float* in) {
    const float* weights = tables.weights + b * tables.length;
    const int64_t step = tables.channels;
    in += tables.starts[b];
    V total = V::zero();
    if (tables.length == 2) {
      add_pixels<kSkipZeros, 2>(in, step, weights, total);
      return total;
    }
    for (int64_t k = 0; k < tables.length; k += 4, in += 4 * step, weights += 4) {
      add_pixels<kSkipZeros, 4>(in, step, weights, total);
    }
    return total;
  }

  template <bool kSkipZeros, int kTaps>
  POLYPHASE_BLOCK static void add_pixels(const float* in, int64_t step, const float* weights, V& total) {
    const V four = V::load(weights);
    repeat<kTaps>([&](auto t) {
      const V value = V::load(in + t * step);
      const V counted = kSkipZeros ? value.where_nonzero(V::broadcast(weights[t])) : value;
      total.v = neon::multiply_add_lane<t>(counted.v, four.v, total.v);
    });
  }

  // A pixel's four lanes, of which the next pixel is written over.
  template <bool kPlane>
  POLYPHASE_BLOCK static void store(const Tables& tables, int64_t b, V result, float* out, int64_t left) {
    if (left >= V::kLanes && (kPlane || tables.shifts[b] == 0)) return result.store(out);
    const int64_t first = kPlane ? 0 : tables.shifts[b], count = kPlane ? left : tables.channels;
    for (int64_t i = 0; i < count; ++i) out[i] = result.v[first + i];
  }
#endif

  int64_t channels_ = 1;
  int64_t out_size_ = 0;
  int64_t length_ = 0;       // taps of an output, filled up with zeros
  Buffer<int32_t> starts_;   // of an output's taps, in elements
  Buffer<float> weights_;    // per block: of a tap, its outputs'
  Buffer<int32_t> shifts_;   // per block of pixels: the lanes before a pixel's
};

#endif

}  // namespace polyphase
