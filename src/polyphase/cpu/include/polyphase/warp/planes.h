// The taps of a tile in planes of floats whose rows lie dense. Up to kPlanes of them at a time: places and weights are loaded
// once for all.
#pragma once

#include "polyphase/simd/quad.h"
#include "polyphase/simd/vector.h"
#include "polyphase/warp/taps.h"

namespace polyphase {

constexpr int kPlanes = 3;

// Channel p is read from in[p] and written to out[p].
template <class T>
struct Planes {
  const T* in[kPlanes];
  float* out[kPlanes];
};

// The nearest pixel, or 0 outside. Floats stand for any four bytes.
template <int kCount, class Taps>
inline void pick_planes(const Planes<float>& planes, const Taps& taps) {
  using Lanes = Vec<float>;
  for (int b = 0; b < kTile; b += Lanes::kLanes) {
    const typename Lanes::Index offset = Lanes::load_index(taps.offset[0] + b);
    const typename Lanes::Index touched = Lanes::load_index(taps.touched + b);
    for (int p = 0; p < kCount; ++p) Lanes::gather(planes.in[p], offset).where(touched).store(planes.out[p] + b);
  }
}

// 2 x 2 taps. Where they lie inside, they are pairs of neighbours.
template <int kCount, class Taps>
inline void sum_pairs(const Planes<float>& planes, Taps& taps) {
  using Lanes = Vec<float>;
  const auto &x = taps.axes[0], &y = taps.axes[1];
  for (int b = 0; b < kTile; b += Lanes::kLanes) {
    int32_t inside = 1;
    if (!taps.inner) {
      for (int i = 0; i < Lanes::kLanes; ++i) inside &= x.inside[b + i] & y.inside[b + i];
    }
    if (inside) {
      const Lanes left = Lanes::load(x.weight[0] + b), right = Lanes::load(x.weight[1] + b);
      const Lanes above = Lanes::load(y.weight[0] + b), below = Lanes::load(y.weight[1] + b);
      const typename Lanes::Index column = Lanes::load_index(x.offset[0] + b);
      const typename Lanes::Index first = Lanes::sum(column, Lanes::load_index(y.offset[0] + b));
      const typename Lanes::Index second = Lanes::advance(first, taps.stride[1]);
      for (int p = 0; p < kCount; ++p) {
        const typename Lanes::Pair a = Lanes::gather_pairs(planes.in[p], first);
        const typename Lanes::Pair c = Lanes::gather_pairs(planes.in[p], second);
        const Lanes upper = multiply_add(a.second, right, multiply_add(a.first, left, Lanes::zero()));
        const Lanes lower = multiply_add(c.second, right, multiply_add(c.first, left, Lanes::zero()));
        multiply_add(lower, below, multiply_add(upper, above, Lanes::zero())).store(planes.out[p] + b);
      }
      continue;
    }
    taps.combine();
    for (int p = 0; p < kCount; ++p) {
      Lanes sum = Lanes::zero();
      for (int k = 0; k < 4; ++k) {
        const Lanes values = Lanes::gather(planes.in[p], Lanes::load_index(taps.offset[k] + b));
        sum = multiply_add(values, Lanes::load(taps.weight[k] + b), sum);
      }
      sum.store(planes.out[p] + b);
    }
  }
}

#if defined(__AVX2__)

// Bytes. The inner taps of a row are neighbours and come in one gathered number; so there must be four bytes to be read.
template <int kCount, class Taps>
inline void sum_byte_rows(const Planes<uint8_t>& planes, const Taps& taps) {
  using Lanes = Vec<float>;
  const auto &x = taps.axes[0], &y = taps.axes[1];
  for (int b = 0; b < kTile; b += Lanes::kLanes) {
    const typename Lanes::Index column = Lanes::load_index(x.offset[0] + b);
    const typename Lanes::Index first = Lanes::sum(column, Lanes::load_index(y.offset[0] + b));
    for (int p = 0; p < kCount; ++p) {
      Lanes sum = Lanes::zero();
      for (int row = 0; row < Taps::kPerAxis; ++row) {
        const auto bytes = Lanes::gather_bytes(planes.in[p], Lanes::advance(first, row * taps.stride[1]));
        Lanes across = Lanes::zero();
#pragma GCC unroll 4
        for (int k = 0; k < Taps::kPerAxis; ++k) {
          across = multiply_add(Lanes::byte(bytes, k), Lanes::load(x.weight[k] + b), across);
        }
        sum = multiply_add(across, Lanes::load(y.weight[row] + b), sum);
      }
      sum.store(planes.out[p] + b);
    }
  }
}

#endif

#if !defined(__AVX2__)

// The four columns of 4 x 4 taps that lie inside, each summed over its rows.
template <class Taps>
POLYPHASE_BLOCK Quad sum_columns(const float* plane, const Taps& taps, int64_t stride, int i) {
  const auto& y = taps.axes[1];
  const float* from = plane + taps.axes[0].offset[0][i] + y.offset[0][i];
  Quad sum = {Quad::load(from).v * y.weight[0][i]};
  sum = multiply_add(Quad::load(from + stride), y.weight[1][i], sum);
  sum = multiply_add(Quad::load(from + 2 * stride), y.weight[2][i], sum);
  return multiply_add(Quad::load(from + 3 * stride), y.weight[3][i], sum);
}

// Four pixels, wherever their taps are.
template <class Taps>
POLYPHASE_ROW_LOOP void sum_anywhere(const float* plane, const Taps& taps, int i, float* out) {
  const auto &x = taps.axes[0], &y = taps.axes[1];
  for (int j = i; j < i + 4; ++j) {
    float sum = 0;
    if (!taps.touched[j]) {
      out[j] = taps.of_nothing(j);
      continue;
    }
    for (int row = 0; row < 4; ++row) {
      const float* from = plane + y.offset[row][j];
      float across = 0;
      for (int k = 0; k < 4; ++k) across += x.weight[k][j] * from[x.offset[k][j]];
      sum += y.weight[row][j] * across;
    }
    out[j] = sum;
  }
}

template <int kCount, class Taps>
inline void sum_fours(const Planes<float>& planes, const Taps& taps) {
  const auto& x = taps.axes[0];
  const int64_t stride = taps.stride[1];
  for (int i = 0; i < kTile; i += 4) {
    if (!taps.inner && !taps.four_inside(i)) {
      for (int p = 0; p < kCount; ++p) sum_anywhere(planes.in[p], taps, i, planes.out[p]);
      continue;
    }
    // Weights lie by tap, then by pixel; needed are those of a pixel.
    Quad a = Quad::load(x.weight[0] + i), b = Quad::load(x.weight[1] + i);
    Quad c = Quad::load(x.weight[2] + i), d = Quad::load(x.weight[3] + i);
    transpose(a, b, c, d);
    for (int p = 0; p < kCount; ++p) {
      const float* plane = planes.in[p];
      Quad s = {a.v * sum_columns(plane, taps, stride, i).v}, t = {b.v * sum_columns(plane, taps, stride, i + 1).v};
      Quad u = {c.v * sum_columns(plane, taps, stride, i + 2).v}, v = {d.v * sum_columns(plane, taps, stride, i + 3).v};
      transpose(s, t, u, v);
      Quad{(s.v + t.v) + (u.v + v.v)}.store(planes.out[p] + i);
    }
  }
}

#endif

}  // namespace polyphase
