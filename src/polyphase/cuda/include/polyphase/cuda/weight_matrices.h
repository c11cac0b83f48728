// Tables of weights as matrices, which tap_maker.h makes and byte_tiles.h multiplies bytes with. `AxisTable::as_matrices` of
// launch/device_axes.h is the host's twin.
//
// Sixteen neighbouring outputs are a group. They read inputs [begin, end) of the axis, by one matrix or two of 16 rows and 32
// columns: the first for inputs from `begin` on. Weights stand over 2^16; what would be 1 is 65535 / 65536, for two bytes are
// all there is: a sum of that weight alone is rounded to the same byte.
#pragma once

#include <cstdint>

namespace polyphase {

constexpr int kGroup = 16;      // outputs
constexpr int kInputs = 32;     // of a matrix
constexpr int kMostMatrices = 2;

struct GroupRange {
  int32_t begin, end;
};

// A matrix in memory, as lanes 4 * g + t want it: 16 bytes of each lane are the high bytes of its weights, then as many for
// all are the low ones. A lane has rows g and g + 8, by columns 4 * t to 4 * t + 3, then the same by 16 columns more.
struct WeightMatrix {
  static constexpr int kLow = 512, kBytes = 1024;

  static int high(int row, int column) {
    const int g = row % 8, t = column % 16 / 4;
    return (4 * g + t) * 16 + column / 16 * 8 + row / 8 * 4 + column % 4;
  }

  // Rows and columns of it that outputs and inputs have, so that what a lane reads is four bytes of one word, and what it has
  // summed are neighbours: along x, inputs 8 * t to 8 * t + 7 are lane t's, and so are outputs 4 * t to 4 * t + 3.
  static int row_along_x(int output) { return output / 2 % 2 * 8 + output / 4 * 2 + output % 2; }
  static int column_along_x(int input) { return input % 8 / 4 * 16 + input / 8 * 4 + input % 4; }

  // Along y, inputs are what sums along x left: of 16 rows, those 2 * t and 2 * t + 1 are lane t's, and 8 more.
  static int row_along_y(int output) { return output; }
  static int column_along_y(int input) {
    const int k = input % 16;
    return input / 16 * 16 + k % 8 / 2 * 4 + k / 8 * 2 + k % 2;
  }
};

}  // namespace polyphase
