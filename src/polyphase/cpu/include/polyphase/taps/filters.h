// The resampling filters of `sampling/filters.py`, to the last bit; only sin and cos, here the standard library's, may
// differ from torch's in theirs. To be compiled with -ffp-contract=off: every operation here rounds on its own.
#pragma once

namespace polyphase::filters {

namespace detail {

constexpr double kPi = 3.141592653589793;

// Without <cmath>, which takes long to parse.
inline float sine(float x) { return __builtin_sinf(x); }
inline double sine(double x) { return __builtin_sin(x); }
inline float cosine(float x) { return __builtin_cosf(x); }
inline double cosine(double x) { return __builtin_cos(x); }
inline float magnitude(float x) { return __builtin_fabsf(x); }
inline double magnitude(double x) { return __builtin_fabs(x); }

// x * factor + offset: for a float rounded once, as eager's fused multiply-adds do.
inline float fused(float x, double factor, double offset) { return static_cast<float>(x * factor + offset); }
inline double fused(double x, double factor, double offset) { return x * factor + offset; }

template <typename Real>
Real where(bool condition, Real then, Real otherwise) {
  return condition ? then : otherwise;
}

template <typename Real>
Real greater(Real a, Real b) {
  return a < b ? b : a;
}

template <typename Real>
Real sinc(Real x) {
  if (x == static_cast<Real>(__builtin_trunc(x))) return x == 0 ? Real(1) : Real(0);
  const Real angle = static_cast<Real>(kPi) * x;
  return sine(angle) / angle;
}

}  // namespace detail

// Real may be several numbers at a time (`taps/lanes.h`), but not where kByNumbers says so.
struct Box {
  static constexpr double kSupport = 0.5;
  static constexpr bool kByNumbers = false;

  template <typename Real>
  Real operator()(Real x) const {
    using detail::where;
    return where(x > Real(-0.5), where(x <= Real(0.5), Real(1), Real(0)), Real(0));
  }
};

struct Triangle {
  static constexpr double kSupport = 1;
  static constexpr bool kByNumbers = false;

  template <typename Real>
  Real operator()(Real x) const {
    using detail::greater, detail::magnitude;
    return greater(Real(1) - magnitude(x), Real(0));
  }
};

struct Hamming {
  static constexpr double kSupport = 1;
  static constexpr bool kByNumbers = true;

  template <typename Real>
  Real operator()(Real x) const {
    x = detail::magnitude(x);
    if (x >= 1) return 0;
    const Real window = Real(0.54) + Real(0.46) * detail::cosine(static_cast<Real>(detail::kPi) * x);
    return detail::sinc(x) * window;
  }
};

// Keys' cubic convolution; `a` is the slope at x = 1.
struct Cubic {
  static constexpr double kSupport = 2;
  static constexpr bool kByNumbers = false;
  double a;

  template <typename Real>
  Real operator()(Real x) const {
    using detail::fused, detail::magnitude, detail::where;
    x = magnitude(x);
    const Real near = fused(fused(x, a + 2, -(a + 3)) * x, x, 1);
    const Real far = fused(fused(fused(x, a, -5 * a), x, 8 * a), x, -4 * a);
    return where(x < Real(1), near, where(x < Real(2), far, Real(0)));
  }
};

struct Lanczos3 {
  static constexpr double kSupport = 3;
  static constexpr bool kByNumbers = true;

  template <typename Real>
  Real operator()(Real x) const {
    return detail::magnitude(x) >= 3 ? Real(0) : detail::sinc(x) * detail::sinc(x / 3);
  }
};

constexpr Box kBox;
constexpr Triangle kTriangle;
constexpr Hamming kHamming;
constexpr Cubic kPlainCubic{-0.75};
constexpr Cubic kAntialiasCubic{-0.5};  // Pillow's
constexpr Lanczos3 kLanczos3;

}  // namespace polyphase::filters
