// How an image is cut into tiles: `byte_tiles.h`.
#pragma once

#include "polyphase/launch/device_recipes.h"

namespace polyphase {

// In the order of `cuda/call.h`. tiles: 0 where it is not cut. along: of them, those along a row.
struct TileCut {
  int64_t tiles, along, tile, strip, span, staged_rows;

  // Of a whole tile: `Listed.costs` of cuda/tiles.py.
  int64_t cost() const { return tile * strip * (staged_rows / strip); }

  // function(cost, count, first) of tiles in a row that cost the same, by the number of the first, of an image of so many groups.
  template <class Function>
  void each_run(int64_t columns, int64_t units, const Function& function) const {
    const int64_t whole = columns / tile, rest = columns - whole * tile, of_group = staged_rows / strip;
    int64_t number = 0;
    for (int64_t unit = 0; unit < units; unit += strip, number += along) {
      const int64_t of_column = min(strip, units - unit) * of_group;
      if (whole > 0) function(tile * of_column, whole, number);
      if (rest > 0) function(rest * of_column, int64_t{1}, number + whole);
    }
  }
};

namespace device {

// Inputs of a matrix, and matrices of a group of outputs; bytes that memory hands out at once.
constexpr int64_t kInputs = 32, kMostMatrices = 2, kPiece = 16;
constexpr int64_t kTileRoom = 40 * 1024;  // of shared memory, without calls

// Of an image: its planes, and channels of a pixel. head: bytes of shared memory before those of weights.
struct TileLayout {
  int64_t planes, channels, head, room;
};

// matrices: of a group of outputs, also where there are fewer: of those that have few, precision is 16 bits at most, as their
// greatest weight is more than 1/4.
inline int64_t matrices_of(const TapRecipe& table) { return parts(most_read(table, kGroup), kInputs); }

// Groups along x and down y: the first that shared memory has room for. inputs_x(count): what so many neighbouring outputs
// read, at most. False where groups read too much. `cut` of cuda/tiles.py is the twin.
template <class InputsX, class InputsY>
bool cut_into_tiles(const TileLayout& layout, int64_t matrices, int64_t width, int64_t height, const InputsX& inputs_x,
                    const InputsY& inputs_y, TileCut& cut, int64_t& shared_bytes) {
  struct Shape {
    int64_t columns, units;
  };
  static constexpr Shape kShapes[] = {{4, 2}, {4, 1}, {2, 1}, {1, 1}};
  if (matrices > kMostMatrices) return false;
  for (const Shape& shape : kShapes) {
    const int64_t rows = inputs_y(kGroup * shape.units);
    // An odd number of pieces: rows that are read at once lie in different banks of shared memory.
    const int64_t pieces = parts(kPiece - 1 + inputs_x(kGroup * shape.columns) * layout.channels + 4, kPiece);
    const int64_t span = (pieces | 1) * kPiece;
    const int64_t weights = (shape.columns + shape.units) * matrices * kMatrixBytes;
    // Rows are read 16 at a time, and bytes of as many inputs as matrices have.
    const int64_t staged = (layout.planes * rows + 15) * span + kInputs * layout.channels * matrices;
    shared_bytes = layout.head + weights + round_up(staged, kPiece);
    if (shared_bytes > layout.room) continue;
    const int64_t along = parts(width, kGroup * shape.columns);
    cut = {along * parts(height, kGroup * shape.units), along, shape.columns, shape.units, span, rows};
    return true;
  }
  return false;
}

}  // namespace device
}  // namespace polyphase
