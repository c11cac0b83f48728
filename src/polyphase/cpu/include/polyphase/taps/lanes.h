// Four numbers at a time, for tables: by the compiler's vector extension, so that it is one text for every instruction set.
// As two registers, of which neither waits for the other: a table is short rows of long chains of operations.
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
  static constexpr int64_t kHalf = 2, kCount = 2 * kHalf;
  typedef Real Register __attribute__((vector_size(kHalf * sizeof(Real))));
  using Bits = Conditional<sizeof(Real) == sizeof(int32_t), int32_t, int64_t>;
  typedef Bits HalfMask __attribute__((vector_size(kHalf * sizeof(Real))));  // all bits of a lane, or none
  struct Mask {
    HalfMask low, high;
  };

  Register low, high;

  Lanes(double x) : Lanes(x, x, x, x) {}
  Lanes(double a, double b, double c, double d)
      : low{static_cast<Real>(a), static_cast<Real>(b)}, high{static_cast<Real>(c), static_cast<Real>(d)} {}
  Lanes(Register first, Register last) : low(first), high(last) {}
  template <typename Other>
  explicit Lanes(Lanes<Other> other)
      : low(__builtin_convertvector(other.low, Register)), high(__builtin_convertvector(other.high, Register)) {}
  static Lanes load(const Real* p) {
    Register first, last;
    std::memcpy(&first, p, sizeof(first));
    std::memcpy(&last, p + kHalf, sizeof(last));
    return Lanes(first, last);
  }
  void store(Real* p) const {
    std::memcpy(p, &low, sizeof(low));
    std::memcpy(p + kHalf, &high, sizeof(high));
  }
  Real greatest() const { return max(max(low[0], low[1]), max(high[0], high[1])); }
  Real least() const { return min(min(low[0], low[1]), min(high[0], high[1])); }

  friend Lanes operator+(Lanes a, Lanes b) { return Lanes(a.low + b.low, a.high + b.high); }
  friend Lanes operator-(Lanes a, Lanes b) { return Lanes(a.low - b.low, a.high - b.high); }
  friend Lanes operator*(Lanes a, Lanes b) { return Lanes(a.low * b.low, a.high * b.high); }
  friend Lanes operator/(Lanes a, Lanes b) { return Lanes(a.low / b.low, a.high / b.high); }
  friend Mask operator<(Lanes a, Lanes b) { return {a.low < b.low, a.high < b.high}; }
  friend Mask operator>(Lanes a, Lanes b) { return {a.low > b.low, a.high > b.high}; }
  friend Mask operator<=(Lanes a, Lanes b) { return {a.low <= b.low, a.high <= b.high}; }
  friend Mask operator==(Lanes a, Lanes b) { return {a.low == b.low, a.high == b.high}; }

  friend Lanes where(Mask condition, Lanes then, Lanes otherwise) {
    return Lanes(chosen(condition.low, then.low, otherwise.low), chosen(condition.high, then.high, otherwise.high));
  }
  // Of numbers, or a number and none.
  friend Lanes greater(Lanes a, Lanes b) { return Lanes(half_greater(a.low, b.low), half_greater(a.high, b.high)); }
  friend Lanes lesser(Lanes a, Lanes b) { return Lanes(half_lesser(a.low, b.low), half_lesser(a.high, b.high)); }
  friend Lanes magnitude(Lanes x) { return Lanes(half_magnitude(x.low), half_magnitude(x.high)); }
  // Of x >= 0.
  friend Lanes with_sign_of(Lanes x, Lanes other) {
    return Lanes(half_with_sign_of(x.low, other.low), half_with_sign_of(x.high, other.high));
  }
  // x * factor + offset: for a float rounded once, as eager's fused multiply-adds do.
  template <typename Factor>
  friend Lanes fused(Lanes x, Factor factor, double offset) {
    return Lanes(Lanes<double>(x) * Lanes<double>(factor) + Lanes<double>(offset));
  }

 private:
  static HalfMask bits(Register x) { return reinterpret_cast<HalfMask>(x); }
  static HalfMask sign() { return bits(Register{-Real(0), -Real(0)}); }
  static Register chosen(HalfMask condition, Register then, Register otherwise) {
    return reinterpret_cast<Register>((bits(then) & condition) | (bits(otherwise) & ~condition));
  }
  static Register half_magnitude(Register x) { return reinterpret_cast<Register>(bits(x) & ~sign()); }
  static Register half_with_sign_of(Register x, Register other) {
    return reinterpret_cast<Register>(bits(x) | (bits(other) & sign()));
  }
  static Register half_greater(Register a, Register b) {
#if defined(POLYPHASE_NEON)
    if constexpr (sizeof(Real) == sizeof(double)) return neon::greater(a, b);
#elif defined(__SSE4_1__)
    if constexpr (sizeof(Real) == sizeof(double)) return Register(_mm_max_pd(b, a));
#endif
    return chosen(a < b, b, a);
  }
  static Register half_lesser(Register a, Register b) {
#if defined(POLYPHASE_NEON)
    if constexpr (sizeof(Real) == sizeof(double)) return neon::lesser(a, b);
#elif defined(__SSE4_1__)
    if constexpr (sizeof(Real) == sizeof(double)) return Register(_mm_min_pd(b, a));
#endif
    return chosen(b < a, b, a);
  }
};

using Doubles = Lanes<double>;

// Towards zero, of less than 2^51.
inline Doubles truncated(Doubles x) {
#if defined(POLYPHASE_NEON)
  return Doubles(neon::truncated(x.low), neon::truncated(x.high));
#elif defined(__SSE4_1__)
  constexpr int kToZero = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC;
  return Doubles(Doubles::Register(_mm_round_pd(x.low, kToZero)), Doubles::Register(_mm_round_pd(x.high, kToZero)));
#else
  const Doubles size = magnitude(x), none = 0x1p52;  // which has no bits for a fraction
  const Doubles nearest = (size + none) - none;
  return with_sign_of(nearest - where(nearest > size, Doubles(1), Doubles(0)), x);
#endif
}

// Towards zero, of less than 2^31, and of those the lower 16 bits, as ATen takes them.
inline void store_shorts(Doubles x, int16_t* to) {
#if defined(POLYPHASE_NEON)
  typedef int64_t Longs __attribute__((vector_size(16)));
  typedef int32_t Words __attribute__((vector_size(16)));
  typedef int16_t Shorts __attribute__((vector_size(8)));
  const auto words = [](Doubles::Register half) { return reinterpret_cast<Words>(__builtin_convertvector(half, Longs)); };
  const Shorts shorts = __builtin_convertvector(neon::even_lanes(words(x.low), words(x.high)), Shorts);
  std::memcpy(to, &shorts, sizeof(shorts));
#elif defined(__SSE4_1__)
  const __m128i words = _mm_unpacklo_epi64(_mm_cvttpd_epi32(x.low), _mm_cvttpd_epi32(x.high));
  const __m128i lower = _mm_srai_epi32(_mm_slli_epi32(words, 16), 16);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packs_epi32(lower, lower));
#else
  for (int64_t i = 0; i < Doubles::kHalf; ++i) {
    to[i] = static_cast<int16_t>(static_cast<int32_t>(x.low[i]));
    to[Doubles::kHalf + i] = static_cast<int16_t>(static_cast<int32_t>(x.high[i]));
  }
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
#if defined(__FMA__) || defined(POLYPHASE_NEON)
  using Register = Doubles::Register;

  Doubles corrected(Doubles near, Doubles x) const {
    return Doubles(corrected(near.low, x.low, value_.low, reciprocal_.low),
                   corrected(near.high, x.high, value_.high, reciprocal_.high));
  }
  static Register corrected(Register near, Register x, Register value, Register reciprocal) {
#if defined(POLYPHASE_NEON)
    return neon::multiply_add(neon::multiply_subtract(near, value, x), reciprocal, near);
#else
    return Register(_mm_fmadd_pd(_mm_fnmadd_pd(near, value, x), reciprocal, near));
#endif
  }
#endif

  Doubles value_, reciprocal_;
};

}  // namespace polyphase
