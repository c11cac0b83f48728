// The formula of a warp's coordinates: the CPU's kernels and CUDA's have it computed by one generated type, from what a
// pixel says of itself:
//
//     entry<n>(), number<n>()    of the image, and of the formula
//     place<a>(), base<a>()      along axis a, of which 0 is the image's first
//     field<f>()
#pragma once

#include "polyphase/warp/rules.h"

namespace polyphase {

// Coordinates that no formula computes.
struct NoFormula {
  static constexpr bool kExists = false, kReadsBase = false;
  static constexpr int kNumbers = 0, kEntries = 0, kFields = 0, kFirstField = 0;
};

constexpr int at_least_one_of(int count) { return count > 0 ? count : 1; }

// What a coordinate's gradient adds to that of a value it was computed from. One of 0 adds nothing, however steep the slope:
// where a homography divides by 0, no pixel is read.
template <class P>
inline P share_of(P gradient, P slope) {
  return gradient == 0 ? P(0) : gradient * slope;
}

}  // namespace polyphase
