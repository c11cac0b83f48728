// Bicubic taps of volumes: of a pixel 16 rows, along y and z, of four taps along x. Four neighbours are one vector.
//
// Padding may have moved rows anywhere. Where it moved taps along x, these are no neighbours, and are read one by one.
#pragma once

#include <cstring>

#include "polyphase/core/unroll.h"
#include "polyphase/simd/quad.h"
#include "polyphase/warp/taps.h"

namespace polyphase {

constexpr int kCubicRows = 16;

// The rows of a tile's pixels: where they lie but for x, and their weights; with slopes, what leads to a row's share of the
// slope along y and z instead of its share of the value.
template <class P, bool kSlopes>
struct CubicRows {
  alignas(64) int32_t offset[kCubicRows][kTile];
  alignas(64) P weight[kCubicRows][kTile];
  alignas(64) P y_slope[kSlopes ? kCubicRows : 1][kTile];
  alignas(64) P z_slope[kSlopes ? kCubicRows : 1][kTile];

  POLYPHASE_ROW_LOOP void make(const WarpTaps<Cubic, P, 3>& taps) {
    const auto &y = taps.axes[1], &z = taps.axes[2];
    for (int r = 0; r < kCubicRows; ++r) {
      const int down = r % 4, deep = r / 4;
      // Of inner taps there is the first, and the others are as many pixels on.
      const int32_t on = taps.inner ? down * taps.stride[1] + deep * taps.stride[2] : 0;
      const int32_t *y_offset = y.offset[taps.inner ? 0 : down], *z_offset = z.offset[taps.inner ? 0 : deep];
      for (int i = 0; i < kTile; ++i) {
        offset[r][i] = y_offset[i] + z_offset[i] + on;
        weight[r][i] = z.weight[deep][i] * y.weight[down][i];
        if constexpr (kSlopes) {
          y_slope[r][i] = z.weight[deep][i] * y.slope[down][i];
          z_slope[r][i] = z.slope[deep][i] * y.weight[down][i];
        }
      }
    }
  }
};

// The rows of pixel i, one after the other, of kChannels channels that lie side by side. dense: neighbours lie side by side.
template <int kChannels, class S, class P, bool kSlopes>
POLYPHASE_BLOCK void copy_rows(const S* image, const WarpTaps<Cubic, P, 3>& taps, const CubicRows<P, kSlopes>& rows, int i,
                               bool dense, S* out) {
  if (dense && taps.are_neighbours(i)) {
    const S* first = image + taps.place(0, 0, i);
    repeat<kCubicRows>([&](auto r) __attribute__((always_inline)) {
      std::memcpy(out + r * 4 * kChannels, first + rows.offset[r][i], 4 * kChannels * sizeof(S));
    });
    return;
  }
  for (int r = 0; r < kCubicRows; ++r) {
    for (int x = 0; x < 4; ++x, out += kChannels) {
      std::memcpy(out, image + rows.offset[r][i] + taps.place(0, x, i), kChannels * sizeof(S));
    }
  }
}

// The columns of pixel i, each summed over the rows. row(r): four taps of kChannels channels, side by side.
template <int kChannels, class P, class Row>
POLYPHASE_BLOCK void sum_cubic_rows(const CubicRows<P, false>& rows, int i, const Row& row, QuadOf<P> (&sums)[kChannels]) {
  repeat<kCubicRows>([&](auto r) __attribute__((always_inline)) {
    const P* from = row(r);
    const P weight = rows.weight[r][i];
    repeat<kChannels>([&](auto q) __attribute__((always_inline)) {
      const QuadOf<P> values = QuadOf<P>::load(from + 4 * q);
      sums[q] = multiply_add(values, weight, r == 0 ? QuadOf<P>::zero() : sums[q]);
    });
  });
}

// To mixed[i], for every pixel: the values at its taps, times its gradient, added up over channels.
template <class Load, class S, class P>
POLYPHASE_ROW_LOOP void mix_rows(const S* plane, const WarpTaps<Cubic, P, 3>& taps, const CubicRows<P, true>& rows, bool dense,
                                 const P (&gradient)[kTile], bool first, P (&mixed)[kTile][4 * kCubicRows]) {
  using Four = QuadOf<P>;
  for (int i = 0; i < kTile; ++i) {
    alignas(64) S copied[4 * kCubicRows];
    alignas(64) P values[4 * kCubicRows];
    if constexpr (Load::kIdentity) {
      copy_rows<1>(plane, taps, rows, i, dense, values);
    } else {
      copy_rows<1>(plane, taps, rows, i, dense, copied);
      Load::row(copied, values, 4 * kCubicRows, RowOperands());
    }
    P* const to = mixed[i];
    repeat<kCubicRows>([&](auto r) __attribute__((always_inline)) {
      const Four before = first ? Four::zero() : Four::load(to + 4 * r);
      multiply_add(Four::load(values + 4 * r), gradient[i], before).store(to + 4 * r);
    });
  }
}

// The slopes of what was mixed along x, y and z, by the position. Bit i of the result: those of pixel i are finite.
template <class P>
POLYPHASE_ROW_LOOP int32_t slopes_of_rows(const WarpTaps<Cubic, P, 3>& taps, const CubicRows<P, true>& rows,
                                          const P (&mixed)[kTile][4 * kCubicRows], P (&found)[3][kTile]) {
  using Four = QuadOf<P>;
  const auto& x = taps.axes[0];
  uint32_t finite = 0;
  for (int i = 0; i < kTile; ++i) {
    Four value = Four::zero(), along_y = Four::zero(), along_z = Four::zero();
    repeat<kCubicRows>([&](auto r) __attribute__((always_inline)) {
      const Four row = Four::load(mixed[i] + 4 * r);
      value = multiply_add(row, rows.weight[r][i], value);
      along_y = multiply_add(row, rows.y_slope[r][i], along_y);
      along_z = multiply_add(row, rows.z_slope[r][i], along_z);
    });
    const auto sum = [i](const P (&by)[4][kTile], Four columns) __attribute__((always_inline)) {
      return by[0][i] * columns.v[0] + by[1][i] * columns.v[1] + (by[2][i] * columns.v[2] + by[3][i] * columns.v[3]);
    };
    const P slopes[3] = {sum(x.slope, value), sum(x.weight, along_y), sum(x.weight, along_z)};
    P nothing = 0;
    for (int a = 0; a < 3; ++a) {
      found[a][i] = slopes[a];
      nothing += slopes[a] - slopes[a];
    }
    finite |= static_cast<uint32_t>(nothing == 0) << i;
  }
  return static_cast<int32_t>(finite);
}

}  // namespace polyphase
