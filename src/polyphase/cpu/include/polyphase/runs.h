// The horizontal pass over float rows that shrink to less than half: outputs lie too far apart to be found in a window, but
// the taps of each are neighbours, and four floats are one load.
#pragma once

#include "polyphase/abi.h"
#include "polyphase/ahead.h"
#include "polyphase/buffer.h"
#include "polyphase/standard.h"
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

#if defined(__AVX512F__)

// Of a plane, four taps of 16 outputs are loaded and transposed. Of interleaved pixels, four outputs are made together, a
// pixel in every four lanes.
template <>
class Runs<float> {
 public:
  // False where this is not the way.
  bool build(const Taps& taps, int64_t channels) {
    if (channels > 4 || taps.in_size <= 2 * taps.out_size || !are_neighbours(taps)) return false;
    channels_ = channels;
    out_size_ = taps.out_size;
    const int64_t widest = widest_of(taps, 0, taps.out_size - 1);
    length_ = channels == 1 ? (widest + 3) / 4 * 4 : widest;
    if (length_ == 0 || length_ > taps.in_size) return false;
    const int64_t count = (out_size_ + outputs() - 1) / outputs();
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
    const int64_t step = outputs() * channels_, length = out_size_ * channels_;
    Fetching fetching(ahead, length / step + 1);
    for (int64_t i = 0, b = 0; i < length; i += step, ++b) {
      fetching.step();
      V result = channels_ == 1 ? of_plane<false>(b, in) : of_pixels<false>(b, in);
      if (__builtin_expect(result.has_nan(), 0)) result = without_zeros(b, in);
      if (channels_ > 1) result = result.permuted(V::load_index(kDense[channels_ - 2][shifts_[b] != 0]));
      result.store_first(out + i, static_cast<int>(min(step, length - i)));
    }
  }

 private:
  using V = Vec<float>;

  // The lanes of four pixels one after the other, which lie at the beginning of four lanes each, or at the end.
  alignas(64) static constexpr int32_t kDense[3][2][V::kLanes] = {
      {{0, 1, 4, 5, 8, 9, 12, 13}, {2, 3, 6, 7, 10, 11, 14, 15}},
      {{0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14}, {1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15}},
      {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {}},
  };

  int64_t outputs() const { return channels_ == 1 ? 16 : 4; }  // of a block

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
    int32_t* starts = starts_.data() + 4 * b;
    int64_t first = INT64_MAX, last = 0;
    for (int i = 0; i < 4; ++i) {
      first = min<int64_t>(first, starts[i]);
      last = max<int64_t>(last, starts[i]);
    }
    const bool beyond = last + (length_ - 1) * channels_ + 4 > in_length;
    const int32_t shift = beyond ? static_cast<int32_t>(4 - channels_) : 0;
    for (int i = 0; i < 4; ++i) starts[i] -= shift;
    shifts_.push_back(shift);
    return first >= shift;
  }

  POLYPHASE_ROW_LOOP V without_zeros(int64_t b, const float* in) const {
    return channels_ == 1 ? of_plane<true>(b, in) : of_pixels<true>(b, in);
  }

  template <bool kSkipZeros>
  POLYPHASE_BLOCK static void add(V value, V weight, V& total) {
    total = multiply_add(kSkipZeros ? value.where_nonzero(weight) : value, weight, total);
  }

  template <bool kSkipZeros>
  POLYPHASE_BLOCK V of_plane(int64_t b, const float* in) const {
    const int32_t* at = starts_.data() + 16 * b;
    const float* weights = weights_.data() + 16 * b * length_;
    V total = V::zero();
    for (int64_t k = 0; k < length_; k += 4, in += 4, weights += 4 * 16) {
      V p = V::load_fours(in + at[0], in + at[4], in + at[8], in + at[12]);
      V q = V::load_fours(in + at[1], in + at[5], in + at[9], in + at[13]);
      V r = V::load_fours(in + at[2], in + at[6], in + at[10], in + at[14]);
      V s = V::load_fours(in + at[3], in + at[7], in + at[11], in + at[15]);
      transpose_fours(p, q, r, s);
      add<kSkipZeros>(p, V::load(weights), total);
      add<kSkipZeros>(q, V::load(weights + 16), total);
      add<kSkipZeros>(r, V::load(weights + 32), total);
      add<kSkipZeros>(s, V::load(weights + 48), total);
    }
    return total;
  }

  template <bool kSkipZeros>
  POLYPHASE_BLOCK V of_pixels(int64_t b, const float* in) const {
    const int32_t* at = starts_.data() + 4 * b;
    const float* weights = weights_.data() + 4 * b * length_;
    V total = V::zero();
    for (int64_t k = 0; k < length_; ++k, in += channels_, weights += 4) {
      add<kSkipZeros>(V::load_fours(in + at[0], in + at[1], in + at[2], in + at[3]), V::load_four_times(weights), total);
    }
    return total;
  }

  int64_t channels_ = 1;
  int64_t out_size_ = 0;
  int64_t length_ = 0;       // taps of an output, filled up with zeros
  Buffer<int32_t> starts_;   // of an output's taps, in elements
  Buffer<float> weights_;    // per block: of a tap, its outputs'
  Buffer<int32_t> shifts_;   // per block of pixels: the lanes before a pixel's
};

#endif

}  // namespace polyphase
