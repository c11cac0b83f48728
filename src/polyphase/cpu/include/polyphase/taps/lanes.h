// Two numbers at a time, for tables: by the compiler's vector extension, so that it is one text for every instruction set.
#pragma once

#include <cstdint>
#include <cstring>

#include "polyphase/core/standard.h"
#include "polyphase/simd/neon.h"

#if defined(__SSE4_1__)
#include "polyphase/simd/intrinsics.h"
#endif

namespace polyphase {

template <typename Real>
struct Lanes {
  static constexpr int64_t kCount = 2;
  typedef Real Register __attribute__((vector_size(kCount * sizeof(Real))));
  using Bits = Conditional<sizeof(Real) == sizeof(int32_t), int32_t, int64_t>;
  typedef Bits Mask __attribute__((vector_size(kCount * sizeof(Real))));  // all bits of a lane, or none

  Register v;

  Lanes(double x) : Lanes(x, x) {}
  Lanes(double first, double second) : v{static_cast<Real>(first), static_cast<Real>(second)} {}
  explicit Lanes(Register each) : v(each) {}
  template <typename Other>
  explicit Lanes(Lanes<Other> other) : v(__builtin_convertvector(other.v, Register)) {}
  static Lanes load(const Real* p) {
    Register each;
    std::memcpy(&each, p, sizeof(each));
    return Lanes(each);
  }
  void store(Real* p) const { std::memcpy(p, &v, sizeof(v)); }

  friend Lanes operator+(Lanes a, Lanes b) { return Lanes(a.v + b.v); }
  friend Lanes operator-(Lanes a, Lanes b) { return Lanes(a.v - b.v); }
  friend Lanes operator*(Lanes a, Lanes b) { return Lanes(a.v * b.v); }
  friend Lanes operator/(Lanes a, Lanes b) { return Lanes(a.v / b.v); }
  friend Mask operator<(Lanes a, Lanes b) { return a.v < b.v; }
  friend Mask operator>(Lanes a, Lanes b) { return a.v > b.v; }
  friend Mask operator<=(Lanes a, Lanes b) { return a.v <= b.v; }
  friend Mask operator==(Lanes a, Lanes b) { return a.v == b.v; }

  friend Lanes where(Mask condition, Lanes then, Lanes otherwise) {
    return Lanes(reinterpret_cast<Register>((reinterpret_cast<Mask>(then.v) & condition) |
                                            (reinterpret_cast<Mask>(otherwise.v) & ~condition)));
  }
  // Of numbers, or a number and none.
  friend Lanes greater(Lanes a, Lanes b) {
#if defined(POLYPHASE_NEON)
    if constexpr (sizeof(Real) == sizeof(double)) return Lanes(neon::greater(a.v, b.v));
#elif defined(__SSE4_1__)
    if constexpr (sizeof(Real) == sizeof(double)) return Lanes(Register(_mm_max_pd(b.v, a.v)));
#endif
    return where(a < b, b, a);
  }
  friend Lanes lesser(Lanes a, Lanes b) {
#if defined(POLYPHASE_NEON)
    if constexpr (sizeof(Real) == sizeof(double)) return Lanes(neon::lesser(a.v, b.v));
#elif defined(__SSE4_1__)
    if constexpr (sizeof(Real) == sizeof(double)) return Lanes(Register(_mm_min_pd(b.v, a.v)));
#endif
    return where(b < a, b, a);
  }
  friend Lanes magnitude(Lanes x) { return Lanes(reinterpret_cast<Register>(reinterpret_cast<Mask>(x.v) & ~sign())); }
  // Of x >= 0.
  friend Lanes with_sign_of(Lanes x, Lanes other) {
    return Lanes(reinterpret_cast<Register>(reinterpret_cast<Mask>(x.v) | (reinterpret_cast<Mask>(other.v) & sign())));
  }
  // x * factor + offset: for a float rounded once, as eager's fused multiply-adds do.
  template <typename Factor>
  friend Lanes fused(Lanes x, Factor factor, double offset) {
    return Lanes(Lanes<double>(x) * Lanes<double>(factor) + Lanes<double>(offset));
  }

 private:
  static Mask sign() { return reinterpret_cast<Mask>(Lanes(-0.0).v); }
};

using Doubles = Lanes<double>;

// Towards zero, of less than 2^51.
inline Doubles truncated(Doubles x) {
#if defined(POLYPHASE_NEON)
  return Doubles(neon::truncated(x.v));
#elif defined(__SSE4_1__)
  return Doubles(Doubles::Register(_mm_round_pd(x.v, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)));
#else
  const Doubles size = magnitude(x), none = 0x1p52;  // which has no bits for a fraction
  const Doubles nearest = (size + none) - none;
  return with_sign_of(nearest - where(nearest > size, Doubles(1), Doubles(0)), x);
#endif
}

// x / divisor, for many x: by the reciprocal, and twice corrected by the remainder. The first makes it one of the two
// doubles next to the quotient, the second then the correctly rounded one (Markstein): weights are 0, or far from where
// doubles lose precision.
class Divisor {
 public:
  explicit Divisor(Doubles divisor) : Divisor(divisor, Doubles(1) / divisor) {}
  Divisor(Doubles divisor, Doubles reciprocal) : value_(divisor), reciprocal_(reciprocal) {}

  Doubles reciprocal() const { return reciprocal_; }


  Doubles of(Doubles x) const {
#if defined(__FMA__) || defined(POLYPHASE_NEON)
    return corrected(corrected(x * reciprocal_, x), x);
#else
    return x / value_;
#endif
  }

 private:
#if defined(__FMA__)
  Doubles corrected(Doubles near, Doubles x) const {
    return Doubles(Doubles::Register(_mm_fmadd_pd(_mm_fnmadd_pd(near.v, value_.v, x.v), reciprocal_.v, near.v)));
  }
#elif defined(POLYPHASE_NEON)
  Doubles corrected(Doubles near, Doubles x) const {
    return Doubles(neon::multiply_add(neon::multiply_subtract(near.v, value_.v, x.v), reciprocal_.v, near.v));
  }
#endif

  Doubles value_, reciprocal_;
};

}  // namespace polyphase
