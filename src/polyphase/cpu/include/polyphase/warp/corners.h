// The four pixels around a place that is sampled bilinearly, with zeros around the plane: the CPU's kernels and CUDA's keep to
// these rules. Corner k lies k & 1 pixels further along x than the first, and k >> 1 along y.
#pragma once

#include "polyphase/warp/rules.h"

namespace polyphase {

constexpr int kCorners = 4;

// Along an axis: the first of two pixels, how far the place lies behind it, and which of the two lie inside.
template <class P>
struct Between {
  int32_t first;
  P fraction;
  bool inside[2];

  // half, last, offset: as a `PixelAxis` has them.
  static Between of(P coordinate, P half, P last, P offset) {
    const P position = multiply_add(coordinate + 1, half, offset), below = floor(position), above = below + 1;
    const bool first = (below >= 0) & (below <= last), second = (above >= 0) & (above <= last);
    return {static_cast<int32_t>(first | second ? below : P(0)), position - below, {first, second}};
  }
  P weight(int which) const { return which == 0 ? 1 - fraction : fraction; }
};

}  // namespace polyphase
