// What the formula of a warp's coordinates reads for an output pixel: the CPU's kernels and CUDA's have it computed by one
// generated type.
#pragma once

#include "polyphase/warp/rules.h"

namespace polyphase {

// Coordinates that no formula computes.
struct NoFormula {
  static constexpr bool kExists = false;
  static constexpr int kNumbers = 0, kEntries = 0, kFields = 0, kFirstField = 0;
};

constexpr int at_least_one_of(int count) { return count > 0 ? count : 1; }

// Of axis numbers, 0 is the image's first.
template <class P, class Formula>
struct FormulaPixel {
  const P* entries;  // of the image
  const P* numbers;
  P place[3], base[3];
  P fields[at_least_one_of(Formula::kFields)];
};

// What a coordinate's gradient adds to that of a value it was computed from. One of 0 adds nothing, however steep the slope:
// where a homography divides by 0, no pixel is read.
template <class P>
inline P share_of(P gradient, P slope) {
  return gradient == 0 ? P(0) : gradient * slope;
}

}  // namespace polyphase
