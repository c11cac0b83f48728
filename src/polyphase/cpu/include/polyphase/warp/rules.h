// The rules of warps, for one position at a time: the CPU's kernels and CUDA's keep to them.
#pragma once

#include "polyphase/core/scalar.h"

namespace polyphase {

enum WarpPadding : int64_t { kZeros, kBorder, kReflection };

// How what lies outside the image goes with what was sampled: as torchvision, as OpenCV and kornia, and as Pillow have it.
enum FillRule : int64_t { kFillNone, kFillBlend, kFillConstant, kFillEdge };

// In elements.
struct ImageStrides {
  int64_t batch, channel, z, y, x;
};
// Of a grid; of matrices (batch, row, column) only batch, y (rows) and x (columns).
struct CoordinateStrides {
  int64_t batch, z, y, x, component;
};

// x * factor + term with one rounding, as eager's vector code has it.
inline float multiply_add(float x, float factor, float term) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__CUDACC__)
  return __builtin_fmaf(x, factor, term);
#else
  return static_cast<float>(static_cast<double>(x) * factor + term);
#endif
}
inline double multiply_add(double x, double factor, double term) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__CUDACC__)
  return __builtin_fma(x, factor, term);
#else
  return x * factor + term;
#endif
}

// One axis of the image, and how coordinates from -1 to 1 lie upon its pixels.
template <class P>
struct PixelAxis {
  PixelAxis() = default;
  // to_float: coordinates were rounded to floats.
  PixelAxis(int64_t size, bool align_corners, bool to_float = sizeof(P) == 4)
      : last(static_cast<P>(sizeof(P) == 4 && size > (1 << 24) ? (size - 1) & ~int64_t(127) : size - 1)),
        half(static_cast<P>(align_corners ? size - 1 : size) / 2),
        offset(align_corners ? P(0) : P(-0.5)),
        low(align_corners ? P(0) : P(-0.5)),
        span(static_cast<P>(align_corners ? size - 1 : size)),
        near(static_cast<P>(size) * epsilon(to_float)) {
    near = near < P(0x1p-10) ? near : P(0x1p-10);
  }

  P last = 0;    // the last pixel; of more than a float can count, one before it, for none behind it may be read
  P half = 0;    // pixels per unit of the coordinate
  P offset = 0;  // -0.5 where coordinates begin at the first pixel's outer edge, else 0
  P low = 0;     // where reflection folds: at the first pixel's centre or outer edge,
  P span = 0;    // and again after so many pixels
  P near = 0;    // what the rounding of coordinates moves a position by, at most

 private:
  static constexpr P epsilon(bool of_float) { return of_float ? P(0x1p-23) : P(0x1p-52); }
};

// Adding it leaves no room for less than halves.
template <class P>
constexpr P kHalves = sizeof(P) == 4 ? 0x1.8p22 : 0x1.8p51;

// The nearest whole or half pixel.
template <class P>
inline P nearest_half(P position) {
  return (position + kHalves<P>) - kHalves<P>;
}

// ---- padding: a position outside becomes one inside

template <class P>
inline P clamped(P position, const PixelAxis<P>& axis) {
  const P from = position > 0 ? position : P(0);  // what is no number becomes 0
  return from < axis.last ? from : axis.last;
}

template <class P>
inline P reflected(P position, const PixelAxis<P>& axis) {
  const P twice = axis.span > 0 ? 2 * axis.span : P(1);  // a single pixel with aligned corners: all folds onto it
  const P distance = abs(position - axis.low);
  const P whole = floor(distance / twice);
  const P rest = distance - whole * twice;
  const P back = 2 * axis.span - rest;
  return clamped((rest < back ? rest : back) + axis.low, axis);
}

// The slopes of what both do to a position, as eager has them: at the very border there is none.
template <class P>
inline P clamped_slope(P position, const PixelAxis<P>& axis) {
  return ((position > 0) & (position < axis.last)) ? P(1) : P(0);
}

template <class P>
inline P reflected_slope(P position, const PixelAxis<P>& axis) {
  const P twice = axis.span > 0 ? 2 * axis.span : P(1);
  const P distance = abs(position - axis.low);
  const P rest = distance - floor(distance / twice) * twice;
  const P back = 2 * axis.span - rest;
  const P forth = position < axis.low ? P(-1) : P(1);
  return clamped_slope((rest < back ? rest : back) + axis.low, axis) * (rest < axis.span ? forth : -forth);
}

// ---- fill: what lies outside the image

// `sum`: of a pixel's taps inside; `share`: of their weights, or by the rule of a hard edge whether the pixel lies inside.
template <class P>
inline P filled(P sum, P share, P fill, int64_t rule) {
  if (rule == kFillBlend) return (sum - fill) * share + fill;
  if (rule == kFillConstant) return share == 1 ? sum : sum + (1 - share) * fill;
  return share != 0 ? sum : fill;
}

// Whether a position lies in a pixel of the image. NaN does not.
template <class P>
inline bool lies_in_pixel(P position, const PixelAxis<P>& axis) {
  return (position >= P(-0.5)) & (position < axis.last + P(0.5));
}

// ---- taps

// kFirst: the first tap lies so many pixels from the position rounded (nearest) or rounded down.
struct Nearest {
  static constexpr int kTaps = 1, kFirst = 0;
};
struct Linear {
  static constexpr int kTaps = 2, kFirst = 0;
};
struct Cubic {
  static constexpr int kTaps = 4, kFirst = -1;
};

template <class P>
inline int32_t lies_inside(P place, const PixelAxis<P>& axis) {
  return (place >= 0) & (place <= axis.last);
}

// Of a whole place; 0 for one outside.
template <class P, class Offset>
inline Offset offset_of(P place, int32_t inside, Offset stride) {
  return static_cast<int32_t>(inside ? place : P(0)) * stride;
}

constexpr double kCubicSlope = -0.75;  // of Keys' cubic convolution at x = 1

// Keys' cubic at distance x from a pixel, below 1 and from 1 to 2; and the slopes of both.
template <class P>
inline P cubic_near(P x) {
  return ((P(kCubicSlope) + 2) * x - (P(kCubicSlope) + 3)) * x * x + 1;
}
template <class P>
inline P cubic_far(P x) {
  return ((P(kCubicSlope) * x - 5 * P(kCubicSlope)) * x + 8 * P(kCubicSlope)) * x - 4 * P(kCubicSlope);
}
template <class P>
inline P cubic_near_slope(P x) {
  return (3 * (P(kCubicSlope) + 2) * x - 2 * (P(kCubicSlope) + 3)) * x;
}
template <class P>
inline P cubic_far_slope(P x) {
  return (3 * P(kCubicSlope) * x - 10 * P(kCubicSlope)) * x + 8 * P(kCubicSlope);
}

}  // namespace polyphase
