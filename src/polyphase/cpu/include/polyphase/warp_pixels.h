// The taps of a tile in an image of pixels of up to four interleaved channels: a pixel is a Quad.
#pragma once

#include "polyphase/quad.h"
#include "polyphase/vector.h"
#include "polyphase/warp_taps.h"

namespace polyphase {

// Four pixels, each with its channels, to rows of channels.
inline void store_channels(Quad a, Quad b, Quad c, Quad d, int i, int channels, float* const (&rows)[4]) {
  transpose(a, b, c, d);
  a.store(rows[0] + i);
  b.store(rows[1] + i);
  if (channels > 2) c.store(rows[2] + i);
  if (channels > 3) d.store(rows[3] + i);
}

// pixel(i) is a Quad.
template <class Pixel>
POLYPHASE_BLOCK void quads_to_rows(int channels, float* const (&rows)[4], Pixel pixel) {
  for (int i = 0; i < kTile; i += 4) {
    store_channels(pixel(i), pixel(i + 1), pixel(i + 2), pixel(i + 3), i, channels, rows);
  }
}

template <class Taps, class S, class Load>
POLYPHASE_BLOCK Quad sum_pixel(const S* image, const Taps& taps, int i, Load load) {
  Quad even = Quad::zero(), odd = Quad::zero();  // two sums at a time: each waits for itself
#pragma GCC unroll 8
  for (int k = 0; k < Taps::kCount; k += 2) {
    even = multiply_add(load(image + taps.offset[k][i]), taps.weight[k][i], even);
    odd = multiply_add(load(image + taps.offset[k + 1][i]), taps.weight[k + 1][i], odd);
  }
  return {even.v + odd.v};
}

// Four pixels of 2 x 2 inner taps at a time: `pixel(i, weights)` is given the weights of pixel i's taps.
template <class Taps, class Pixel>
POLYPHASE_BLOCK void inner_quads_to_rows(int channels, const Taps& taps, float* const (&rows)[4], Pixel pixel) {
  for (int i = 0; i < kTile; i += 4) {
    Quad a = Quad::load(taps.weight[0] + i), b = Quad::load(taps.weight[1] + i);
    Quad c = Quad::load(taps.weight[2] + i), d = Quad::load(taps.weight[3] + i);
    transpose(a, b, c, d);
    store_channels(pixel(i, a), pixel(i + 1, b), pixel(i + 2, c), pixel(i + 3, d), i, channels, rows);
  }
}

#if defined(__AVX2__)

// Pixels of bytes, all four of which can be read: many pixels at a time, each gathered as one number.
template <class Taps>
inline void sum_byte_pixels(const uint8_t* image, int channels, const Taps& taps, float* const (&rows)[4]) {
  using Lanes = Vec<float>;
  for (int b = 0; b < kTile; b += Lanes::kLanes) {
    Lanes red = Lanes::zero(), green = Lanes::zero(), blue = Lanes::zero(), alpha = Lanes::zero();
#pragma GCC unroll 4
    for (int k = 0; k < Taps::kCount; ++k) {
      const typename Lanes::Index pixels = Lanes::gather_bytes(image, Lanes::load_index(taps.offset[k] + b));
      const Lanes weight = Lanes::load(taps.weight[k] + b);
      red = multiply_add(Lanes::byte(pixels, 0), weight, red);
      green = multiply_add(Lanes::byte(pixels, 1), weight, green);
      if (channels > 2) blue = multiply_add(Lanes::byte(pixels, 2), weight, blue);
      if (channels > 3) alpha = multiply_add(Lanes::byte(pixels, 3), weight, alpha);
    }
    red.store(rows[0] + b);
    green.store(rows[1] + b);
    if (channels > 2) blue.store(rows[2] + b);
    if (channels > 3) alpha.store(rows[3] + b);
  }
}

#endif

#if defined(__AVX2__)

// 2 x 2 inner taps: two neighbouring pixels of up to four channels fill a vector of eight.
class PixelPairs {
 public:
  static constexpr int kReads = 8;  // elements from the first tap on, in both rows

  explicit PixelPairs(int channels) {
    alignas(32) int32_t above[8], below[8], second[8];
    for (int l = 0; l < 8; ++l) {
      above[l] = l / channels & 1;
      below[l] = 2 + above[l];
      second[l] = l + channels;
    }
    above_ = _mm256_load_si256(reinterpret_cast<const __m256i*>(above));
    below_ = _mm256_load_si256(reinterpret_cast<const __m256i*>(below));
    second_ = _mm256_load_si256(reinterpret_cast<const __m256i*>(second));
  }

  POLYPHASE_BLOCK Quad sum(const float* first, int64_t stride, Quad weights) const {
    const __m256 all = _mm256_castps128_ps256(weights.v);
    __m256 sum = _mm256_mul_ps(_mm256_loadu_ps(first), _mm256_permutevar8x32_ps(all, above_));
    sum = _mm256_fmadd_ps(_mm256_loadu_ps(first + stride), _mm256_permutevar8x32_ps(all, below_), sum);
    return {_mm256_castps256_ps128(_mm256_add_ps(sum, _mm256_permutevar8x32_ps(sum, second_)))};
  }

 private:
  __m256i above_, below_, second_;  // lane by lane: whose weight it takes, and what is added to it
};

#endif

#if defined(__AVX512F__)

// 4 x 4 taps that lie inside: four neighbouring pixels of up to four channels fill a vector.
class PixelFours {
 public:
  explicit PixelFours(int channels) : channels_(channels) {
    alignas(64) int32_t tap[16], half[16], quarter[16];
    for (int l = 0; l < 16; ++l) {
      tap[l] = l / channels;
      half[l] = l + 2 * channels;
      quarter[l] = l + channels;
    }
    tap_ = Vec<float>::load_index(tap);
    half_ = Vec<float>::load_index(half);
    quarter_ = Vec<float>::load_index(quarter);
  }

  template <class Taps>
  POLYPHASE_BLOCK Quad sum(const float* image, const Taps& taps, int64_t stride, int i, Quad columns) const {
    using Lanes = Vec<float>;
    const auto& y = taps.axes[1];
    image += taps.axes[0].offset[0][i] + y.offset[0][i];
    const auto row = [&](int k) { return Lanes::load_first(image + k * stride, 4 * channels_); };
    Lanes sum = {row(0).v * y.weight[0][i]};
    sum = multiply_add(row(1), Lanes::broadcast(y.weight[1][i]), sum);
    sum = multiply_add(row(2), Lanes::broadcast(y.weight[2][i]), sum);
    sum = multiply_add(row(3), Lanes::broadcast(y.weight[3][i]), sum);
    sum = multiply_add(sum, Lanes::of_quad(columns.v).permuted(tap_), Lanes::zero());
    sum = {sum.v + sum.permuted(half_).v};
    sum = {sum.v + sum.permuted(quarter_).v};
    return {sum.quad()};
  }

 private:
  int channels_;
  Vec<float>::Index tap_, half_, quarter_;  // lane by lane: the tap it belongs to, and what is added to it
};

// Four pixels, wherever their taps are.
template <class Taps>
POLYPHASE_ROW_LOOP void sum_anywhere(const float* image, int channels, const Taps& taps, int i, float* const (&rows)[4]) {
  const auto &x = taps.axes[0], &y = taps.axes[1];
  for (int j = i; j < i + 4; ++j) {
    Quad sum = {Quad::Register{} + taps.of_nothing(j)};
    for (int row = 0; row < (taps.touched[j] ? 4 : 0); ++row) {
      const float* from = image + y.offset[row][j];
      Quad across = Quad::zero();
      for (int k = 0; k < 4; ++k) {
        across = multiply_add(Quad::load_first(from + x.offset[k][j], channels), x.weight[k][j], across);
      }
      sum = multiply_add(across, y.weight[row][j], sum);
    }
    for (int c = 0; c < channels; ++c) rows[c][j] = sum.v[c];
  }
}

template <class Taps>
inline void pixel_fours_to_rows(const float* image, int channels, const Taps& taps, float* const (&rows)[4]) {
  const auto& x = taps.axes[0];
  const int64_t stride = taps.stride[1];
  const PixelFours fours(channels);
  for (int i = 0; i < kTile; i += 4) {
    if (!taps.inner && !taps.four_inside(i)) {
      sum_anywhere(image, channels, taps, i, rows);
      continue;
    }
    Quad a = Quad::load(x.weight[0] + i), b = Quad::load(x.weight[1] + i);
    Quad c = Quad::load(x.weight[2] + i), d = Quad::load(x.weight[3] + i);
    transpose(a, b, c, d);
    a = fours.sum(image, taps, stride, i, a);
    b = fours.sum(image, taps, stride, i + 1, b);
    c = fours.sum(image, taps, stride, i + 2, c);
    d = fours.sum(image, taps, stride, i + 3, d);
    store_channels(a, b, c, d, i, channels, rows);
  }
}

#endif

}  // namespace polyphase
