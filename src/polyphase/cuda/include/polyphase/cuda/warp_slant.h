// Pixels of a warp that lie aslant in their tile: along a line that leads to one row of the image, or to few. However the
// image is turned, what one load of the warp asks for lies in few lines of memory. Outputs are collected in shared memory, and
// stored row by row.
#pragma once

#include "polyphase/cuda/warp_taps.h"

namespace polyphase {

// How the pixels of a warp follow each other: from column to column, each `by` rows below the one before; or, where that would
// be more than one row (is_steep), from row to row, each `by` columns to the right of the one before.
struct Slant {
  float by;
  bool is_steep;

  // along_x, along_y: what a step of one output pixel along x, or y, adds to the position along the image's y. The line is the
  // one along which that position stays.
  template <class P>
  static Slant of(P along_x, P along_y) {
    const bool is_steep = abs(along_x) > abs(along_y);
    const auto by = static_cast<float>(is_steep ? -along_y / along_x : -along_x / along_y);
    return {abs(by) <= 1 ? by : 0.0f, is_steep};  // 0 also where it is NaN
  }
};

// A tile of 32 columns. kSteep: whether its slant is steep.
template <int kRows, bool kSteep>
struct SlantedTile {
  static constexpr int kColumns = 32, kPixels = kColumns * kRows;
  static_assert(kColumns % kRows == 0, "a warp has whole columns");

  struct Spot {
    int32_t column, row;
  };

  // The pixel of a lane of line `number`, of kRows. A line that leaves the tile at one edge goes on at the opposite one: so
  // all lines together have each pixel once, whatever the slant.
  static Spot spot(const Slant& slant, int number, int lane) {
    const int along = kSteep ? lane % kRows : lane;
    const auto moved = static_cast<int32_t>(floor(static_cast<float>(along) * slant.by + 0.5f));
    if (!kSteep) return {lane, (number + moved) & (kRows - 1)};
    return {(number * (kColumns / kRows) + lane / kRows + moved) & (kColumns - 1), along};
  }

  // Where its output is collected. All that a warp stores at once lie in different banks of shared memory, or in most of them,
  // and so do all of a row, which are read at once.
  static int place(const Spot& at) {
    if (!kSteep) return at.row * kColumns + at.column;
    return at.row * kColumns + ((at.column + kColumns / kRows * at.row) & (kColumns - 1));
  }
};

}  // namespace polyphase
