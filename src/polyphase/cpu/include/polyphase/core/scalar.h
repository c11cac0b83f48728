// The element types of images, and single operations on them as torch's CPU kernels compute them; for the CPU and for
// CUDA, where the processor's own conversions to 16 bits are taken: they differ in the bits of a NaN at most.
//
// Every function is free of branches, so that g++ vectorises a loop over it; none has undefined
// behaviour for any argument. To be compiled with -ffp-contract=off, never with -ffast-math.
#pragma once

#include <cstdint>

namespace polyphase {

inline int32_t bits_of(float x) { return __builtin_bit_cast(int32_t, x); }
inline float float_of(int32_t bits) { return __builtin_bit_cast(float, bits); }

// By bit operations: g++ turns `?:` around float arithmetic into a branch, as that could trap.
inline int32_t select(bool condition, int32_t yes, int32_t no) {
  const int32_t mask = -static_cast<int32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

// A float's exponent field e, at its place in the bits, stands for 2^(e - 127).
constexpr int32_t exponent_field(int32_t e) { return e << 23; }

constexpr int32_t kMagnitude = 0x7fffffff;
constexpr int32_t kInfinity = exponent_field(255);
constexpr int32_t kHalfNormal = exponent_field(127 - 14);    // the least normal half
constexpr int32_t kHalfOverflow = exponent_field(127 + 16);  // 2^16: no half is

// A half of exponent e counts units of 2^(e - 10). Added to 2^(e + 13), whose unit that is, a float
// is rounded to a half, ties to even. Subnormal halves have the unit of the least normal one.
inline int32_t half_rounding_exponent(int32_t magnitude) {
  int32_t exponent = magnitude & kInfinity;
  exponent = exponent > kHalfNormal ? exponent : kHalfNormal;
  return exponent < kHalfOverflow ? exponent : kHalfOverflow;
}
inline float half_rounding_term(int32_t exponent) {
  return float_of(exponent + exponent_field(13));
}

// A GPU converts two at once as soon as one, and sooner than by its instruction for one.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
inline uint32_t half_bits(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
inline uint32_t bfloat16_bits(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
#endif

// A bool in memory: any byte but 0 is true, as to torch. Pillow's are 255.
struct boolean {
  uint8_t byte;

  boolean() = default;
  boolean(bool x) : byte(x) {}

  operator bool() const { return byte != 0; }
};

struct half {
  uint16_t bits;

  half() = default;

#ifdef __CUDA_ARCH__
#if __CUDA_ARCH__ >= 800
  half(float x) : bits(static_cast<uint16_t>(half_bits(x, 0))) {}
#else
  half(float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x)); }
#endif

  operator float() const {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
  }
#else
  half(float x) {
    const int32_t magnitude = bits_of(x) & kMagnitude;
    const int32_t bounded = magnitude < kHalfOverflow ? magnitude : kHalfOverflow;
    const int32_t exponent = half_rounding_exponent(bounded);
    const float sum = float_of(bounded) + half_rounding_term(exponent);
    // The units counted include the implicit bit 2^10 of a normal half, or 2^11 after a carry.
    const int32_t rounded = ((exponent - kHalfNormal) >> 13) + (bits_of(sum) & 0xfff);
    const int32_t sign = (bits_of(x) >> 16) & 0x8000;
    bits = static_cast<uint16_t>(sign | select(magnitude > kInfinity, 0x7e00, rounded));
  }

  operator float() const {
    const int32_t magnitude = bits & 0x7fff;
    // The exponent field of infinity and NaN, 31, becomes 255; scaling by 2^-112 leaves them.
    const float normal = float_of((magnitude << 13) + exponent_field(255 - 31)) * 0x1p-112f;
    const float subnormal = float_of(magnitude | bits_of(0.5f)) - 0.5f;  // units of 2^-24
    const int32_t sign = static_cast<int32_t>(static_cast<uint32_t>(bits & 0x8000) << 16);
    return float_of(sign | select(magnitude < 0x400, bits_of(subnormal), bits_of(normal)));
  }
#endif
};

struct bfloat16 {
  uint16_t bits;  // the upper half of a float

  bfloat16() = default;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  bfloat16(float x) : bits(static_cast<uint16_t>(bfloat16_bits(x, 0))) {}
#else
  bfloat16(float x) {
    const uint32_t wide = __builtin_bit_cast(uint32_t, x);
    const uint32_t rounded = (wide + 0x7fff + ((wide >> 16) & 1)) >> 16;
    bits = static_cast<uint16_t>((bits_of(x) & kMagnitude) > kInfinity ? 0x7fc0 : rounded);
  }
#endif

  operator float() const {
    return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
  }
};

// Two of them, side by side as in memory.
template <class Storage>
inline uint32_t pair_bits(float low, float high) {
  return Storage(low).bits | uint32_t(Storage(high).bits) << 16;
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
template <>
inline uint32_t pair_bits<half>(float low, float high) {
  return half_bits(low, high);
}
template <>
inline uint32_t pair_bits<bfloat16>(float low, float high) {
  return bfloat16_bits(low, high);
}
#endif

// float(Storage(x)) without the way through 16 bits.
template <class Storage>
inline float rounded(float x);

template <>
inline float rounded<half>(float x) {
#ifdef __CUDA_ARCH__
  return half(x);
#else
  const int32_t magnitude = bits_of(x) & kMagnitude;
  const float term = half_rounding_term(half_rounding_exponent(magnitude));
  const float nearest = (float_of(magnitude) + term) - term;
  const float overflown = (nearest * 0x1p112f) * 0x1p-112f;  // infinite from 2^16 on
  return float_of(bits_of(overflown) | (bits_of(x) & ~kMagnitude));
#endif
}

template <>
inline float rounded<bfloat16>(float x) {
  return bfloat16(x);
}

// ---- casts

template <class A, class B>
constexpr bool is_same = false;
template <class T>
constexpr bool is_same<T, T> = true;

template <class T>
constexpr bool is_floating = is_same<T, float> || is_same<T, double>;

inline float abs(float x) { return __builtin_fabsf(x); }
inline double abs(double x) { return __builtin_fabs(x); }

// Towards zero. What Integer cannot hold, NaN too, gives its least value, as the x86
// instruction does.
template <class Integer, class Float>
inline Integer truncated(Float x) {
  constexpr Float limit = sizeof(Integer) == 8 ? Float(0x1p63) : Float(0x1p31);
  return static_cast<Integer>(abs(x) < limit ? x : -limit);
}

// Tensor.to; a half or bfloat16 is a float here, see `rounded`. Integers wrap. A float out of an
// integer's range is undefined in torch; here it gives what torch's kernels give on x86, where int8
// and int16 go through int32, uint8 through int64. From float to uint8, int32 does as well and
// vectorises without AVX-512: from 2^31 on a float's last 8 bits are 0, like the least int32's.
template <class To, class From>
inline To cast(From x) {
  if constexpr (is_same<To, bool>) {
    return x != From(0);
  } else if constexpr (is_floating<From> && !is_floating<To>) {
    constexpr bool through_int64 =
        is_same<To, int64_t> || (is_same<To, uint8_t> && is_same<From, double>);
    if constexpr (through_int64) {
      return static_cast<To>(truncated<int64_t>(x));
    } else {
      return static_cast<To>(truncated<int32_t>(x));
    }
  } else {
    return static_cast<To>(x);
  }
}

// ---- arithmetic

// For integers, which wrap: unsigned arithmetic is free of overflow. A sum of bools is their "or".
template <class T>
inline T add(T a, T b) {
  return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
template <class T>
inline T sub(T a, T b) {
  return static_cast<T>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
template <class T>
inline T mul(T a, T b) {
  return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

template <class T>
inline T neg(T x) {
  if constexpr (is_floating<T>) {
    return -x;
  } else {
    return sub(T(0), x);
  }
}

template <class T>
inline T abs(T x) {
  return x < T(0) ? neg(x) : x;
}

// NaN and -0.0 stay.
template <class T>
inline T relu(T x) {
  return x < T(0) ? T(0) : x;
}

// NaN wins. Of zeros with different signs the right one is taken, as by torch's vector code (the
// scalar code for the last few values of its rows takes the left one).
template <class T>
inline T minimum(T a, T b) {
  const T less = a < b ? a : b;  // b where it is NaN
  return a != a ? a : less;
}
template <class T>
inline T maximum(T a, T b) {
  const T greater = a > b ? a : b;
  return a != a ? a : greater;
}

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__CUDA_ARCH__)
constexpr bool kFastDivision = true;
#else
constexpr bool kFastDivision = false;
#endif

// 1 / divisor, for `quotient`; NaN where the divisor is out of the range it needs.
inline float reciprocal_of(float divisor) {
  const int32_t magnitude = bits_of(divisor) & kMagnitude;
  const bool safe = magnitude >= exponent_field(127 - 40) && magnitude <= exponent_field(127 + 40);
  return float_of(select(safe, bits_of(1.0f / divisor), kMagnitude));
}

// x / divisor, many times with one divisor. Fast: multiplied by the reciprocal, and corrected by the remainder, which
// gives the correctly rounded quotient (Markstein) as long as nothing leaves the range of normal floats: for a divisor
// of 2^-40 to 2^40 and a quotient of 2^-60 to 2^60, and for +0. Else `unsafe` is set.
template <bool kFast>
inline float quotient(float x, float divisor, float reciprocal, int32_t& unsafe) {
  if (!kFast) return x / divisor;
  const float near = x * reciprocal;
  const uint32_t magnitude = static_cast<uint32_t>(bits_of(near) & kMagnitude);
  constexpr uint32_t kLeast = exponent_field(127 - 60), kMost = exponent_field(127 + 60);
  const bool zero = (static_cast<uint32_t>(bits_of(x)) | magnitude) == 0;  // not where the reciprocal is NaN
  unsafe |= (magnitude - kLeast > kMost - kLeast) & !zero;
  return __builtin_fmaf(__builtin_fmaf(-near, divisor, x), reciprocal, near);
}

// Of a byte, which no common divisor makes unsafe.
inline float quotient_of_byte(uint8_t x, float divisor, float reciprocal) {
  const float value = x, near = value * reciprocal;
  if (!kFastDivision) return value / divisor;
  return __builtin_fmaf(__builtin_fmaf(-near, divisor, value), reciprocal, near);
}

inline float sqrt(float x) { return __builtin_sqrtf(x); }
inline double sqrt(double x) { return __builtin_sqrt(x); }
inline float floor(float x) { return __builtin_floorf(x); }
inline double floor(double x) { return __builtin_floor(x); }
inline float ceil(float x) { return __builtin_ceilf(x); }
inline double ceil(double x) { return __builtin_ceil(x); }
inline float round_half_even(float x) { return __builtin_nearbyintf(x); }
inline double round_half_even(double x) { return __builtin_nearbyint(x); }

// The nearest Integer, of two the even one; NaN gives 0. A Float has room for all of them.
template <class Integer = uint8_t, class Float>
inline Integer saturated(Float x) {
  static_assert(sizeof(Integer) < sizeof(Float) && sizeof(Integer) <= 4);
  constexpr bool kSigned = Integer(-1) < Integer(0);
  constexpr int kBits = 8 * sizeof(Integer) - kSigned;
  constexpr Float kMost = static_cast<Float>((uint64_t{1} << kBits) - 1), kLeast = kSigned ? -kMost - 1 : Float(0);
  const Float number = !kSigned || x == x ? x : Float(0);
  const Float least = number > kLeast ? number : kLeast;
  return static_cast<Integer>(static_cast<int32_t>(round_half_even(least < kMost ? least : kMost)));
}

}  // namespace polyphase
