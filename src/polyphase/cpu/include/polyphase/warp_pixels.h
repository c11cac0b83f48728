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

// Of 2 x 2 taps that lie inside, where they lie follows from the first.
template <class Taps, class S, class Load>
POLYPHASE_BLOCK Quad sum_inner_pixel(const S* image, const Taps& taps, int i, Load load) {
  const S* first = image + taps.axes[0].offset[0][i] + taps.axes[1].offset[0][i];
  const int64_t x = taps.stride[0], y = taps.stride[1];
  Quad even = multiply_add(load(first), taps.weight[0][i], Quad::zero());
  Quad odd = multiply_add(load(first + x), taps.weight[1][i], Quad::zero());
  even = multiply_add(load(first + y), taps.weight[2][i], even);
  odd = multiply_add(load(first + x + y), taps.weight[3][i], odd);
  return {even.v + odd.v};
}

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
