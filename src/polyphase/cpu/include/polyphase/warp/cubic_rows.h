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

// The rows of pixel i, one after the other, of kChannels channels that lie side by side.
template <int kChannels, class S, class P, bool kSlopes>
POLYPHASE_BLOCK void copy_rows(const S* image, const WarpTaps<Cubic, P, 3>& taps, const CubicRows<P, kSlopes>& rows, int i,
                               S* out) {
  if (taps.are_neighbours(i)) {
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

}  // namespace polyphase
