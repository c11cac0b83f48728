// Pixels of a tile aslant: a warp's are those that lead to one row of the image, or to few, so that what a load asks for lies
// in few lines of memory, however the image is turned. Outputs are collected in shared memory, and stored row by row.
#pragma once

#include "polyphase/cuda/warp_taps.h"

namespace polyphase {

// How pixels follow each other: side by side, each by so many rows lower than the one before; or, where that would be more
// than one, one below the other, and by so many columns further right.
struct Slant {
  float by;
  bool is_steep;

  // By what is added to a position along y for an output pixel along x, and along y.
  template <class P>
  static Slant of(P along_x, P along_y) {
    const bool is_steep = abs(along_x) > abs(along_y);
    const auto by = static_cast<float>(is_steep ? -along_y / along_x : -along_x / along_y);
    return {abs(by) <= 1 ? by : 0.0f, is_steep};  // also where it is no number
  }
};

// A tile of 32 columns. kSteep: as its slant is.
template <int kRows, bool kSteep>
struct SlantedTile {
  static constexpr int kColumns = 32, kPixels = kColumns * kRows;
  static_assert(kColumns % kRows == 0, "a column, or several, are a warp's");

  struct Spot {
    int32_t column, row;
  };

  // Of warp `number` of the tile's kRows: all of them together have all pixels, whatever the slant. Those that would be moved
  // over an edge of the tile come in at the other.
  static Spot spot(const Slant& slant, int number, int lane) {
    const int along = kSteep ? lane % kRows : lane;
    const auto moved = static_cast<int32_t>(floor(static_cast<float>(along) * slant.by + 0.5f));
    if (!kSteep) return {lane, (number + moved) & (kRows - 1)};
    return {(number * (kColumns / kRows) + lane / kRows + moved) & (kColumns - 1), along};
  }

  // Where its output is collected: those of a warp's pixels in different banks, or in most of them, and those of a row in all.
  static int place(const Spot& at) {
    if (!kSteep) return at.row * kColumns + at.column;
    return at.row * kColumns + ((at.column + kColumns / kRows * at.row) & (kColumns - 1));
  }
};

}  // namespace polyphase
