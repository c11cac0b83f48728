// A part of an image in shared memory.
#pragma once

#include "polyphase/cuda/block.h"
#include "polyphase/cuda/warp_taps.h"

namespace polyphase {

// Columns x and rows y of kPlanes planes, in which a pixel has kStep elements side by side. Rows are kPitch elements apart,
// best an odd number: then pixels one above the other lie in different banks of shared memory, as those side by side do.
template <class T, int kPlanes, int kStep, int kPitch, int kRows, int kThreads>
struct ImageBox {
  static constexpr int kWarps = kThreads / 32, kAtOnce = 2, kRounds = (kPitch + 31) / 32;

  PixelRange x, y;
  T* data;

  bool fits() const { return x.count() <= kPitch / kStep && y.count() <= kRows; }

  // Where a pixel lies in `data`, and what leads from there to a channel of another pixel.
  int32_t place(int32_t column, int32_t row) const { return (row - y.first) * kPitch + (column - x.first) * kStep; }
  static constexpr int offset(int columns, int rows, int channel) {
    return rows * kPitch + columns * kStep + channel * (kPlanes > 1 ? kRows * kPitch : 1);
  }

  // Pixels outside the image are made by the padding rules of single taps. A warp copies kAtOnce rows at a time, of all
  // planes.
  template <class P>
  void fill(const Block& block, const T* image, const ImageStrides& s, const PixelAxis<P> (&axes)[2], int64_t padding) const {
    block.each_thread([&](int thread) {
      int64_t columns[kRounds];  // offsets in a row of the image, -1 outside
#pragma unroll
      for (int r = 0; r < kRounds; ++r) {
        const int32_t at = thread % 32 + r * 32;
        const P column = padded_tap(static_cast<P>(x.first + at / kStep), axes[0], padding);
        const bool seen = at < x.count() * kStep && lies_inside(column, axes[0]);
        columns[r] = seen ? static_cast<int32_t>(column) * s.x + at % kStep : -1;
      }
      for (int32_t row = thread / 32; row < y.count(); row += kWarps * kAtOnce) {
        T read[kAtOnce][kRounds][kPlanes] = {};
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const P own = padded_tap(static_cast<P>(y.first + row + i * kWarps), axes[1], padding);
          if (row + i * kWarps >= y.count() || !lies_inside(own, axes[1])) continue;
          const T* from = image + static_cast<int32_t>(own) * s.y;
#pragma unroll
          for (int r = 0; r < kRounds; ++r) {
#pragma unroll
            for (int p = 0; p < kPlanes; ++p) {
              if (columns[r] >= 0) read[i][r][p] = fetched(from + p * s.channel + columns[r]);
            }
          }
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
          for (int r = 0; r < kRounds; ++r) {
            const int32_t at = thread % 32 + r * 32;
            if (row + i * kWarps >= kRows || at >= kPitch) continue;
#pragma unroll
            for (int p = 0; p < kPlanes; ++p) data[(p * kRows + row + i * kWarps) * kPitch + at] = read[i][r][p];
          }
        }
      }
    });
  }
};

}  // namespace polyphase
