// What a whole block stores at once: outputs that were collected, or a tile that lies outside the image.
#pragma once

#include "polyphase/cuda/warp_pixels.h"

namespace polyphase {

// Row by row, after all threads have put theirs into shared memory. kSteep: as the tile's slant is.
template <class Kernel, bool kSteep>
inline void store_collected(const Block& block, const TilePlace<Kernel>& place) {
  using To = typename Kernel::To;
  using Threads = typename Kernel::Threads;
  using Aslant = typename Kernel::template Aslant<kSteep>;
  constexpr int kAxes = Kernel::kAxes;
  block.template each_thread<true>([&](int thread) {
    const int column = Threads::column(thread);
    const int32_t x = place.x + column;
    if (x >= static_cast<int32_t>(place.call.out_size[2])) return;
    const ImageStrides& strides = place.call.target_strides;
    const OutputPixel first = output_pixel<kAxes>(place.call, place.row + Threads::row(thread), x);
    To* of_row = element(place.target(place.first), offset_in<kAxes, typename Kernel::Offset>(strides, first));
#pragma unroll
    for (int p = 0; p < Kernel::kPixelsAslant; ++p, of_row += Threads::kRows * strides.y) {
      const int row = Threads::row(thread) + p * Threads::kRows;
      if (place.row + row >= row_count<kAxes>(place.call)) return;
      const To* const from = place.collected + Aslant::place({column, row});
#pragma unroll
      for (int c = 0; c < Kernel::kTogether; ++c) of_row[c * strides.channel] = from[c * Aslant::kPixels];
    }
  });
}

template <class Kernel>
inline void fill_outside(const Block& block, const TilePlace<Kernel>& place) {
  using To = typename Kernel::To;
  using Value = typename Kernel::Value;
  using P = typename Kernel::P;
  using Threads = typename Kernel::Threads;
  using OfRow = OutsideRow<To, Threads::kColumns>;
  constexpr int kAxes = Kernel::kAxes, kTogether = Kernel::kTogether, kRows = Threads::kRows * Kernel::kPixelsAslant;
  constexpr int kAtOnce = Kernel::kThreads / OfRow::kThreadsOfRow;
  const WarpCall& call = place.call;
  block.template each_thread<true>([&](int thread) {
    const bool before = place.tile.is_outside[kTileBefore], behind = place.tile.is_outside[kTileBehind];
    const ThreadPixels<Kernel, false> own(place, place.first, place.first + kTogether, place.x);
#pragma unroll 1
    for (int i = thread / OfRow::kThreadsOfRow; i < kTogether * kRows; i += kAtOnce) {
      const typename Kernel::Row row = place.row + i % kRows;
      if (row >= row_count<kAxes>(call)) continue;
      const int64_t c = place.first + i / kRows;
      const OutputPixel first = output_pixel<kAxes>(call, row, place.x);
      const auto offset = offset_in<kAxes, typename Kernel::Offset>(call.target_strides, first);
      const OfRow filled = {element(place.target(c), offset), static_cast<int32_t>(call.out_size[2]) - place.x};
      const To value = Kernel::Store::apply(own.outer_filled(Value{}, P(0), c), call, c, nullptr);
      filled.fill(thread % OfRow::kThreadsOfRow, before, behind, value);
    }
  });
}

}  // namespace polyphase
