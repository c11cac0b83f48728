// Where an output pixel lies in the input, as eager rounds it.
//
// To be compiled with -ffp-contract=off: tables equal eager's only if every operation rounds where it is written.
#pragma once

#include <cstdint>

#include "polyphase/core/abi.h"

namespace polyphase::detail {

// A position rounded down to a whole number in [0, most]; what is no number is 0.
template <typename Real>
int64_t whole_pixel(Real position, int64_t most) {
  if (!(position > 0)) return 0;
  return position < static_cast<Real>(most) ? static_cast<int64_t>(position) : most;
}

// Whether eager computes in float or in double. The sum, difference, product or quotient of floats is that of doubles,
// rounded once more: one loop serves both, which computes in double and rounds where eager does. Where eager rounds
// once, after a fused multiply-add, a float's expression is rounded at its end.
struct Rounding {
  bool to_float;

  double operator()(double value) const { return to_float ? static_cast<float>(value) : value; }
  double operator()(int64_t value) const { return (*this)(static_cast<double>(value)); }
};

inline double ratio_of(double length, int64_t out_size, Rounding round) {
  return round(round(length) / round(out_size));
}

// Input pixels that are resized.
inline double length_of(const Step& step, int64_t in_size) {
  const bool boxed = step.end == step.end;
  return boxed ? step.end - step.begin : static_cast<double>(in_size);
}

// Input pixels per output pixel, rounded as eager rounds it. keep_equal: a scale that leaves the size as it is leaves
// the axis as it is.
inline double scaled_ratio(const Step& step, int64_t in_size, bool keep_equal, Rounding round) {
  const bool scaled = step.scale == step.scale;
  if (!scaled) return ratio_of(length_of(step, in_size), step.a, round);
  return keep_equal && in_size == step.a ? 1 : round(1 / step.scale);
}

// ratio * (i + 0.5) - 0.5 with one rounding: both halves' products are exact for sizes below 2^24. From where a box begins.
inline double half_pixel_source(const Step& step, double ratio, int64_t i) {
  const double centre = static_cast<double>(i) + 0.5;
  const double high = static_cast<float>(ratio);
  const double low = ratio - high;
  return (high * centre - (0.5 - step.begin)) + low * centre;
}

}  // namespace polyphase::detail
