// What a block knows of its tile of outputs before it makes them.
#pragma once

#include "polyphase/cuda/warp_outside.h"
#include "polyphase/cuda/warp_slant.h"
#include "polyphase/cuda/warp_taps.h"

namespace polyphase {

// From a tensor's first element to a plane.
inline int64_t image_offset(const ImageStrides& s, int64_t n, int64_t c) { return n * s.batch + c * s.channel; }

// In shared memory, for all threads. Addresses are of the block's first channel: they are products of 64 bits, which no thread
// makes again. Kernel, here and wherever it is a parameter: a `Warp` (warp.h), for its types and constants.
template <class Kernel>
struct BlockTile : WarpTile<typename Kernel::P, Kernel::kAxes> {
  const typename Kernel::From* source;
  typename Kernel::To* target;
  Slant slant;
  bool is_outside[kNeighbourhood];  // where pixels lie aslant, by a matrix
};

// The tile of a block, of image n, from channel `first` on.
template <class Kernel>
struct TilePlace {
  using G = typename Kernel::G;
  using P = typename Kernel::P;
  using From = typename Kernel::From;
  using To = typename Kernel::To;
  using Threads = typename Kernel::Threads;
  using Tile = BlockTile<Kernel>;

  const WarpCall& call;
  const Tile& tile;
  int64_t n, first;
  typename Kernel::Row row;
  int32_t x;
  To* collected;  // in shared memory, where pixels lie aslant

  const From* image(int64_t channel) const { return tile.source + (channel - first) * call.image_strides.channel; }
  To* target(int64_t channel) const { return global(tile.target) + (channel - first) * call.target_strides.channel; }

  // What threads find out of their tile, of so many rows. Where pixels lie aslant, parts of it are found by different warps:
  // one alone would take as long as for a good part of the pixels, while all others wait.
  void enter(Tile& own, int32_t rows, int thread) const {
    const int axis = thread % 32, warp = thread / 32;
    const auto finds = [&](int part) { return warp == (Kernel::kSlanted > 0 ? part : 0); };
    if constexpr (Kernel::kFindsOutside) {
      if (finds(2) && axis < kNeighbourhood) own.is_outside[axis] = is_outside(rows, axis);
    }
    if (axis >= Kernel::kAxes) return;
    if (Kernel::kAffine && finds(0)) own.template enter_matrix<G>(call, n, pixel_at(x), axis);
    if (finds(1)) own.template enter_axis<G>(call, axis);
    if (finds(2) && axis == 0) {
      own.source = static_cast<const From*>(call.source) + image_offset(call.image_strides, n, first);
      own.target = static_cast<To*>(call.target) + image_offset(call.target_strides, n, first);
    }
    if (Kernel::kBoxRows > 0 && finds(0)) {
      own.template reach<typename Kernel::Filter>(axis, Threads::kColumns, rows, pads_taps());
    }
    if constexpr (Kernel::kSlanted > 0) {
      if (finds(3) && axis == 0) own.slant = slant();
    }
  }

 private:
  static_assert(sizeof(Tile) <= kTileBytes);
  static_assert(Kernel::kSlanted == 0 || Kernel::kThreads >= 128, "four warps find what is known of a tile");

  OutputPixel pixel_at(int32_t column) const { return output_pixel<Kernel::kAxes>(call, row, column); }

  // Whether padding makes taps of those outside the image, and leaves positions as they are. With a fill, they are made by
  // its rules.
  bool pads_taps() const {
    return Kernel::kFill == kFillNone && (Kernel::Filter::kTaps > 2 || call.padding == kZeros);
  }

  // As the tile's first pixel has it.
  Slant slant() const {
    using Formula = typename Kernel::Formula;
    static_assert(Kernel::kAffine || Formula::kExists, "a grid would have to be read");
    if constexpr (Kernel::kAffine) {
      const CoordinateStrides& s = call.coordinate_strides;
      const G* matrix_row = static_cast<const G*>(call.coordinates) + n * s.batch + s.y;
      return Slant::of(static_cast<P>(matrix_row[0]) * static_cast<P>(call.base_step[2]),
                       static_cast<P>(matrix_row[s.x]) * static_cast<P>(call.base_step[1]));
    } else {
      const typename Kernel::Positions positions(call, tile, n);
      const auto y_of = [&](int32_t column, int32_t line) {
        P at[Kernel::kAxes];
        Formula::coordinates(positions.read({0, line, column}), at);
        return at[1];
      };
      const P origin = y_of(x, row);
      return Slant::of(y_of(x + 1, row) - origin, y_of(x, row + 1) - origin);
    }
  }

  // Of this tile, or of a neighbour along the row.
  bool is_outside(int32_t rows, int which) const {
    if (call.padding != kZeros || call.target_strides.x != 1 || (which == kTileBefore && x == 0)) return false;
    const int32_t column = x + (which == kTileBefore ? -Threads::kColumns : which == kTileBehind ? Threads::kColumns : 0);
    return misses_image<typename Kernel::Filter, G, P>(call, n, pixel_at(column), Threads::kColumns, rows);
  }
};

}  // namespace polyphase
