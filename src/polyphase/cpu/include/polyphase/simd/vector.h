// A vector register of float or double, for each instruction set: the only file of the float kernels that knows one.
//
// `pick` may read `Vec<T>::kWindow` elements from its pointer on. Nothing else reads more than its arguments say.
#pragma once

#include <cstdint>
#include <cstring>

#include "polyphase/core/standard.h"
#include "polyphase/simd/neon.h"
#include "polyphase/simd/quad.h"

#if defined(__AVX512F__) || defined(__AVX2__)
#include "polyphase/simd/intrinsics.h"
#include "polyphase/simd/places.h"
#endif

namespace polyphase {

template <class T>
struct Vec;

// Where Vec<float> has what warps in registers need.
#if defined(__AVX2__) || defined(POLYPHASE_NEON)
#define POLYPHASE_WARPS_IN_REGISTERS 1
#endif

// Whole numbers that are nearest to a vector's (ties to even), as integers and as floats. What is no integer is less than 0.
template <class Lanes>
struct RoundedByConversion {
  using Index = typename Lanes::Index;
  Index whole;
  static RoundedByConversion of(Lanes x) { return {Lanes::nearest(x)}; }
  Index index() const { return whole; }
  Lanes value() const { return Lanes::of_index(whole); }
};

#if defined(__AVX512F__)

template <>
struct Vec<float> {
  static constexpr int kLanes = 16;
  static constexpr int kWindow = 32;
  using Index = __m512i;
  using Mask = __mmask16;  // of lanes

  __m512 v;

  static Vec zero() { return {_mm512_setzero_ps()}; }
  static Vec broadcast(float x) { return {_mm512_set1_ps(x)}; }
  static Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static Vec load_first(const float* p, int n) { return {_mm512_maskz_loadu_ps(first(n), p)}; }
  void store(float* p) const { _mm512_storeu_ps(p, v); }
  void store_first(float* p, int n) const { _mm512_mask_storeu_ps(p, first(n), v); }

  static Index load_index(const int32_t* p) { return _mm512_loadu_si512(p); }
  static constexpr int32_t place(int32_t element) { return element; }
  static Index further(Index places, int32_t by) { return advance(places, by); }
  static Index advance(Index i, int32_t by) { return _mm512_add_epi32(i, _mm512_set1_epi32(by)); }
  static Index sum(Index a, Index b) { return _mm512_add_epi32(a, b); }
  static Index times(Index i, int32_t by) { return _mm512_mullo_epi32(i, _mm512_set1_epi32(by)); }
  static void store_index(Index i, int32_t* p) { _mm512_storeu_si512(p, i); }
  // Towards zero, to the nearest (ties to even), and back.
  static Index truncated(Vec x) { return _mm512_cvttps_epi32(x.v); }
  static Index nearest(Vec x) { return _mm512_cvtps_epi32(x.v); }
  static Vec of_index(Index i) { return {_mm512_cvtepi32_ps(i)}; }
  using Rounded = RoundedByConversion<Vec>;
  Vec minus(Vec other) const { return {_mm512_sub_ps(v, other.v)}; }
  // From `least`, or 0, to `most`; what is no number becomes the least.
  Vec clamped(Vec least, Vec most) const { return {_mm512_min_ps(_mm512_max_ps(v, least.v), most.v)}; }
  Vec clamped(Vec most) const { return clamped(zero(), most); }
  Vec abs() const { return {_mm512_abs_ps(v)}; }
  Vec lesser(Vec other) const { return {_mm512_min_ps(v, other.v)}; }
  Vec greater(Vec other) const { return {_mm512_max_ps(v, other.v)}; }
  Vec distance(Vec other) const { return minus(other).abs(); }
  // The lanes from 0 to `last`; in both masks, or in either.
  static Mask within(Index i, int32_t last) { return _mm512_cmple_epu32_mask(i, _mm512_set1_epi32(last)); }
  static Mask both(Mask a, Mask b) { return _kand_mask16(a, b); }
  static Mask either(Mask a, Mask b) { return _kor_mask16(a, b); }
  static bool any(Mask mask) { return mask != 0; }
  static bool all(Mask mask) { return mask == 0xffff; }
  static Index kept(Index i, Mask mask) { return _mm512_maskz_mov_epi32(mask, i); }
  // All bits of a lane in the mask, none of another.
  static Index bits(Mask mask) { return _mm512_maskz_mov_epi32(mask, _mm512_set1_epi32(-1)); }
  static Index greater(Index a, Index b) { return _mm512_max_epu32(a, b); }  // less than 0 is very much
  Vec floor() const { return {_mm512_roundscale_ps(v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)}; }
  Vec plus(Vec other) const { return {_mm512_add_ps(v, other.v)}; }
  // pick: lane l is the element of a window whose `place` is i[l]; `further` moves places on by so many elements. kPicks: the
  // window may be two registers.
  static constexpr bool kPicks = true;
  static Vec pick(Vec low, Vec high, Index i) { return {_mm512_permutex2var_ps(low.v, i, high.v)}; }
  static Vec pick(const float* window, Index i) { return pick(load(window), load(window + kLanes), i); }
#if defined(__AVX512VBMI__)
  static Vec gather(const float* p, Index i) { return gather(p, i, 0xffff); }
  // Nothing is read for lanes that are not in the mask: they are 0.
  static Vec gather(const float* p, Index i, Mask mask) {
    return {_mm512_mask_i32gather_ps(_mm512_setzero_ps(), mask, i, p, 4)};
  }
  // Lane l is the four bytes from p[i[l]] on.
  static Index gather_bytes(const uint8_t* p, Index i) {
    return _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), 0xffff, i, p, 1);
  }
#else
  static Vec gather(const float* p, Index i) { return joined(lower(i).floats(p), upper(i).floats(p)); }
  static Vec gather(const float* p, Index i, Mask mask) { return gather(p, kept(i, mask)).where(mask); }
  static Index gather_bytes(const uint8_t* p, Index i) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(lower(i).bytes(p)), upper(i).bytes(p), 1);
  }
#endif
  static Places lower(Index i) { return Places(_mm512_castsi512_si256(i)); }
  static Places upper(Index i) { return Places(_mm512_extracti64x4_epi64(i, 1)); }
  static Vec joined(__m256 low, __m256 high) {
    const __m512d both = _mm512_castpd256_pd512(_mm256_castps_pd(low));
    return {_mm512_castpd_ps(_mm512_insertf64x4(both, _mm256_castps_pd(high), 1))};
  }

  // Byte c of each lane as a float.
  static Vec byte(Index bytes, int c) {
    const __m512i low = _mm512_srlv_epi32(bytes, _mm512_set1_epi32(8 * c));
    return {_mm512_cvtepi32_ps(_mm512_and_si512(low, _mm512_set1_epi32(0xff)))};
  }

  struct Pair;
  // Lane l of both is p[i[l]] and p[i[l] + 1]: half the loads of two gathers.
  static Pair gather_pairs(const float* p, Index i);
  // Lane l of both is p[2 l] and p[2 l + 1].
  static Pair load_pairs(const float* p);

  // Lane l is lane i[l] of this.
  Vec permuted(Index i) const { return {_mm512_permutexvar_ps(i, v)}; }
  // load_fours: four elements from each of the places at[0], at[stride], at[2 * stride] and at[3 * stride] on.
  // load_four_times: each of four elements in four lanes.
  static Vec load_fours(const float* p, const int32_t* at, int stride) {
    const float *a = p + at[0], *b = p + at[stride], *c = p + at[2 * stride], *d = p + at[3 * stride];
    const __m256 low = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(a)), _mm_loadu_ps(b), 1);
    const __m256 high = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(c)), _mm_loadu_ps(d), 1);
    return joined(low, high);
  }
  static Vec load_four_times(const float* p) {
    const Index places = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    return {_mm512_permutexvar_ps(places, _mm512_castps128_ps512(_mm_loadu_ps(p)))};
  }
  // Four lanes to each of so many rows.
  void store_fours(int rows, float* p, int64_t stride) const {
    _mm_storeu_ps(p, _mm512_castps512_ps128(v));
    if (rows > 1) _mm_storeu_ps(p + stride, _mm512_extractf32x4_ps(v, 1));
    if (rows > 2) _mm_storeu_ps(p + 2 * stride, _mm512_extractf32x4_ps(v, 2));
    if (rows > 3) _mm_storeu_ps(p + 3 * stride, _mm512_extractf32x4_ps(v, 3));
  }
  // Lane l is lane i[l] of this, or, from kLanes on, of another.
  Vec permuted(Index i, Vec other) const { return {_mm512_permutex2var_ps(v, i, other.v)}; }
  // This where `condition` is not 0, or in the mask, else 0.
  Vec where(Index condition) const { return where(_mm512_test_epi32_mask(condition, condition)); }
  Vec where(Mask mask) const { return {_mm512_maskz_mov_ps(mask, v)}; }
  // Another's lanes where they are in the mask, so near to these that the difference needs no rounding; what is infinite may
  // become NaN. at_most: the lanes that are not above `most`.
  Vec replaced(Mask mask, Vec by) const { return {_mm512_mask_mov_ps(v, mask, by.v)}; }
  Mask at_most(Vec most) const { return _mm512_cmp_ps_mask(v, most.v, _CMP_LE_OQ); }
  bool has_nan() const { return _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q) != 0; }
  // The lanes from `least` on and below `most`; whether all lie there.
  Mask between(Vec least, Vec most) const {
    const Mask from = _mm512_cmp_ps_mask(v, least.v, _CMP_GE_OQ);
    return _mm512_mask_cmp_ps_mask(from, v, most.v, _CMP_LT_OQ);
  }
  bool lies_between(Vec least, Vec most) const { return all(between(least, most)); }
  // This value where `weight` is not 0, else 0.
  Vec where_nonzero(Vec weight) const {
    return {_mm512_maskz_mov_ps(_mm512_test_epi32_mask(_mm512_castps_si512(weight.v), _mm512_castps_si512(weight.v)), v)};
  }

 private:
  static __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1); }
};

template <>
struct Vec<double> {
  static constexpr int kLanes = 8;
  static constexpr int kWindow = 16;
  using Index = __m256i;

  __m512d v;

  static Vec zero() { return {_mm512_setzero_pd()}; }
  Vec plus(Vec other) const { return {_mm512_add_pd(v, other.v)}; }
  static Vec broadcast(double x) { return {_mm512_set1_pd(x)}; }
  static Vec load(const double* p) { return {_mm512_loadu_pd(p)}; }
  static Vec load_first(const double* p, int n) { return {_mm512_maskz_loadu_pd(first(n), p)}; }
  void store(double* p) const { _mm512_storeu_pd(p, v); }
  void store_first(double* p, int n) const { _mm512_mask_storeu_pd(p, first(n), v); }

  static Index load_index(const int32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static constexpr int32_t place(int32_t element) { return element; }
  static Index further(Index places, int32_t by) { return advance(places, by); }
  static Index advance(Index i, int32_t by) { return _mm256_add_epi32(i, _mm256_set1_epi32(by)); }
  static constexpr bool kPicks = true;
  static Vec pick(Vec low, Vec high, Index i) { return {_mm512_permutex2var_pd(low.v, _mm512_cvtepi32_epi64(i), high.v)}; }
  static Vec pick(const double* window, Index i) { return pick(load(window), load(window + kLanes), i); }
  static Vec gather(const double* p, Index i) { return {_mm512_mask_i32gather_pd(_mm512_setzero_pd(), 0xff, i, p, 8)}; }

  bool has_nan() const { return _mm512_cmp_pd_mask(v, v, _CMP_UNORD_Q) != 0; }
  bool lies_between(Vec least, Vec most) const {
    const __mmask8 from = _mm512_cmp_pd_mask(v, least.v, _CMP_GE_OQ);
    return _mm512_mask_cmp_pd_mask(from, v, most.v, _CMP_LT_OQ) == 0xff;
  }
  Vec where_nonzero(Vec weight) const {
    return {_mm512_maskz_mov_pd(_mm512_test_epi64_mask(_mm512_castpd_si512(weight.v), _mm512_castpd_si512(weight.v)), v)};
  }

 private:
  static __mmask8 first(int n) { return static_cast<__mmask8>((1u << n) - 1); }
};

// Within each four lanes, lane j of the i-th becomes lane i of the j-th.
inline void transpose_fours(Vec<float>& p, Vec<float>& q, Vec<float>& r, Vec<float>& s) {
  const __m512 a = _mm512_unpacklo_ps(p.v, q.v), b = _mm512_unpackhi_ps(p.v, q.v);
  const __m512 c = _mm512_unpacklo_ps(r.v, s.v), d = _mm512_unpackhi_ps(r.v, s.v);
  p.v = _mm512_shuffle_ps(a, c, 0x44);
  q.v = _mm512_shuffle_ps(a, c, 0xee);
  r.v = _mm512_shuffle_ps(b, d, 0x44);
  s.v = _mm512_shuffle_ps(b, d, 0xee);
}

struct Vec<float>::Pair {
  Vec first, second;
};
// Two vectors of pairs to the first and the second of each.
inline Vec<float>::Pair unzipped(__m512 low, __m512 high) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  return {{_mm512_permutex2var_ps(low, even, high)}, {_mm512_permutex2var_ps(low, odd, high)}};
}
inline Vec<float>::Pair Vec<float>::gather_pairs(const float* p, Index i) {
#if defined(__AVX512VBMI__)
  const auto pairs = [p](__m256i i) {
    return _mm512_castpd_ps(_mm512_mask_i32gather_pd(_mm512_setzero_pd(), 0xff, i, p, 4));
  };
  return unzipped(pairs(_mm512_castsi512_si256(i)), pairs(_mm512_extracti64x4_epi64(i, 1)));
#else
  const Places::Pairs low = lower(i).pairs(p), high = upper(i).pairs(p);
  return {joined(low.first, high.first), joined(low.second, high.second)};
#endif
}
inline Vec<float>::Pair Vec<float>::load_pairs(const float* p) {
  return unzipped(_mm512_loadu_ps(p), _mm512_loadu_ps(p + 16));
}
inline Vec<float> multiply_add(Vec<float> a, Vec<float> b, Vec<float> c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Vec<double> multiply_add(Vec<double> a, Vec<double> b, Vec<double> c) { return {_mm512_fmadd_pd(a.v, b.v, c.v)}; }

#elif defined(__AVX2__)

// The first n lanes of eight 32 bit ones.
inline __m256i first_lanes(int n) {
  alignas(32) static const int32_t kRamp[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kRamp + 8 - n));
}

template <>
struct Vec<float> {
  static constexpr int kLanes = 8;
  static constexpr int kWindow = 16;
  using Index = __m256i;
  using Mask = __m256i;  // all bits of a lane, or none

  __m256 v;

  static Vec zero() { return {_mm256_setzero_ps()}; }
  static Vec broadcast(float x) { return {_mm256_set1_ps(x)}; }
  static Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
  static Vec load_first(const float* p, int n) { return {_mm256_maskload_ps(p, first_lanes(n))}; }
  void store(float* p) const { _mm256_storeu_ps(p, v); }
  void store_first(float* p, int n) const { _mm256_maskstore_ps(p, first_lanes(n), v); }

  static Index load_index(const int32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static constexpr int32_t place(int32_t element) { return element; }
  static Index further(Index places, int32_t by) { return advance(places, by); }
  static Index advance(Index i, int32_t by) { return _mm256_add_epi32(i, _mm256_set1_epi32(by)); }
  static Index sum(Index a, Index b) { return _mm256_add_epi32(a, b); }
  static Index times(Index i, int32_t by) { return _mm256_mullo_epi32(i, _mm256_set1_epi32(by)); }
  static void store_index(Index i, int32_t* p) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), i); }
  static Index truncated(Vec x) { return _mm256_cvttps_epi32(x.v); }
  static Index nearest(Vec x) { return _mm256_cvtps_epi32(x.v); }
  static Vec of_index(Index i) { return {_mm256_cvtepi32_ps(i)}; }
  using Rounded = RoundedByConversion<Vec>;
  Vec minus(Vec other) const { return {_mm256_sub_ps(v, other.v)}; }
  Vec clamped(Vec least, Vec most) const { return {_mm256_min_ps(_mm256_max_ps(v, least.v), most.v)}; }
  Vec clamped(Vec most) const { return clamped(zero(), most); }
  Vec abs() const { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), v)}; }
  Vec lesser(Vec other) const { return {_mm256_min_ps(v, other.v)}; }
  Vec greater(Vec other) const { return {_mm256_max_ps(v, other.v)}; }
  Vec distance(Vec other) const { return minus(other).abs(); }
  static Mask within(Index i, int32_t last) {
    return _mm256_cmpeq_epi32(_mm256_min_epu32(i, _mm256_set1_epi32(last)), i);
  }
  static Mask both(Mask a, Mask b) { return _mm256_and_si256(a, b); }
  static Mask either(Mask a, Mask b) { return _mm256_or_si256(a, b); }
  static bool any(Mask mask) { return _mm256_testz_si256(mask, mask) == 0; }
  static bool all(Mask mask) { return _mm256_movemask_epi8(mask) == -1; }
  static Index kept(Index i, Mask mask) { return _mm256_and_si256(i, mask); }
  static Index bits(Mask mask) { return mask; }
  static Index greater(Index a, Index b) { return _mm256_max_epu32(a, b); }
  Vec floor() const { return {_mm256_floor_ps(v)}; }
  Vec plus(Vec other) const { return {_mm256_add_ps(v, other.v)}; }
  static constexpr bool kPicks = true;
  static Vec pick(Vec low, Vec high, Index i) {
    const __m256 from_high = _mm256_castsi256_ps(_mm256_slli_epi32(i, 28));  // bit 3 to the sign
    return {_mm256_blendv_ps(_mm256_permutevar8x32_ps(low.v, i), _mm256_permutevar8x32_ps(high.v, i), from_high)};
  }
  static Vec pick(const float* window, Index i) { return pick(load(window), load(window + kLanes), i); }
  static Vec gather(const float* p, Index i) { return {Places(i).floats(p)}; }
  static Vec gather(const float* p, Index i, Mask mask) { return gather(p, kept(i, mask)).where(mask); }

  static Index gather_bytes(const uint8_t* p, Index i) { return Places(i).bytes(p); }
  static Vec byte(Index bytes, int c) {
    const __m256i low = _mm256_srlv_epi32(bytes, _mm256_set1_epi32(8 * c));
    return {_mm256_cvtepi32_ps(_mm256_and_si256(low, _mm256_set1_epi32(0xff)))};
  }

  struct Pair;
  static Pair gather_pairs(const float* p, Index i);
  static Pair load_pairs(const float* p);
  Vec where(Index condition) const {
    const __m256i none = _mm256_cmpeq_epi32(condition, _mm256_setzero_si256());
    return {_mm256_andnot_ps(_mm256_castsi256_ps(none), v)};
  }
  Vec replaced(Mask mask, Vec by) const {
    return {by.v + _mm256_andnot_ps(_mm256_castsi256_ps(mask), v - by.v)};  // where a blend takes three operations
  }
  Mask at_most(Vec most) const { return _mm256_castps_si256(_mm256_cmp_ps(v, most.v, _CMP_LE_OQ)); }

  bool has_nan() const { return _mm256_movemask_ps(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)) != 0; }
  Mask between(Vec least, Vec most) const {
    const __m256 from = _mm256_cmp_ps(v, least.v, _CMP_GE_OQ), to = _mm256_cmp_ps(v, most.v, _CMP_LT_OQ);
    return _mm256_castps_si256(_mm256_and_ps(from, to));
  }
  bool lies_between(Vec least, Vec most) const { return all(between(least, most)); }
  Vec where_nonzero(Vec weight) const {
    return {_mm256_and_ps(v, _mm256_cmp_ps(weight.v, _mm256_setzero_ps(), _CMP_NEQ_UQ))};
  }
};

template <>
struct Vec<double> {
  static constexpr int kLanes = 4;
  static constexpr int kWindow = 8;
  using Index = __m128i;

  __m256d v;

  static Vec zero() { return {_mm256_setzero_pd()}; }
  Vec plus(Vec other) const { return {_mm256_add_pd(v, other.v)}; }
  static Vec broadcast(double x) { return {_mm256_set1_pd(x)}; }
  static Vec load(const double* p) { return {_mm256_loadu_pd(p)}; }
  static Vec load_first(const double* p, int n) { return {_mm256_maskload_pd(p, first_lanes(2 * n))}; }
  void store(double* p) const { _mm256_storeu_pd(p, v); }
  void store_first(double* p, int n) const { _mm256_maskstore_pd(p, first_lanes(2 * n), v); }

  static Index load_index(const int32_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
  static constexpr int32_t place(int32_t element) { return element; }
  static Index further(Index places, int32_t by) { return advance(places, by); }
  static Index advance(Index i, int32_t by) { return _mm_add_epi32(i, _mm_set1_epi32(by)); }
  static constexpr bool kPicks = false;
  static Vec pick(const double* window, Index i) { return gather(window, i); }
  static Vec gather(const double* p, Index i) { return {_mm256_i32gather_pd(p, i, 8)}; }

  bool has_nan() const { return _mm256_movemask_pd(_mm256_cmp_pd(v, v, _CMP_UNORD_Q)) != 0; }
  bool lies_between(Vec least, Vec most) const {
    const __m256d from = _mm256_cmp_pd(v, least.v, _CMP_GE_OQ), to = _mm256_cmp_pd(v, most.v, _CMP_LT_OQ);
    return _mm256_movemask_pd(_mm256_and_pd(from, to)) == 0xf;
  }
  Vec where_nonzero(Vec weight) const {
    return {_mm256_and_pd(v, _mm256_cmp_pd(weight.v, _mm256_setzero_pd(), _CMP_NEQ_UQ))};
  }
};

struct Vec<float>::Pair {
  Vec first, second;
};
inline Vec<float>::Pair Vec<float>::gather_pairs(const float* p, Index i) {
  const Places::Pairs pairs = Places(i).pairs(p);
  return {{pairs.first}, {pairs.second}};
}
inline Vec<float>::Pair Vec<float>::load_pairs(const float* p) {
  const auto fours = [](const float* first, const float* second) __attribute__((always_inline)) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(first)), _mm_loadu_ps(second), 1);
  };
  const __m256 a = fours(p, p + 8), b = fours(p + 4, p + 12);
  return {{_mm256_shuffle_ps(a, b, 0x88)}, {_mm256_shuffle_ps(a, b, 0xdd)}};
}

inline Vec<float> multiply_add(Vec<float> a, Vec<float> b, Vec<float> c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
inline Vec<double> multiply_add(Vec<double> a, Vec<double> b, Vec<double> c) { return {_mm256_fmadd_pd(a.v, b.v, c.v)}; }

#else

typedef int32_t TwoInts __attribute__((vector_size(8)));
typedef int32_t FourInts __attribute__((vector_size(16)));

// 16 bytes by the compiler's vector extension: SSE2, NEON, or plain code.
template <class T>
struct Vec {
  static constexpr int kLanes = 16 / sizeof(T);
  static constexpr int kWindow = 2 * kLanes;
  typedef T Register __attribute__((vector_size(16)));
  typedef T Anywhere __attribute__((vector_size(16), aligned(1), may_alias));
  using Index = Conditional<sizeof(T) == 4, FourInts, TwoInts>;

  Register v;

  static Vec zero() { return {Register{}}; }
  Vec plus(Vec other) const { return {v + other.v}; }
  static Vec broadcast(T x) {
    if constexpr (kLanes == 4) {
      return {Register{x, x, x, x}};
    } else {
      return {Register{x, x}};
    }
  }
  static Vec load(const T* p) { return {*reinterpret_cast<const Anywhere*>(p)}; }
  static Vec load_first(const T* p, int n) {
    Vec result = zero();
    std::memcpy(&result.v, p, n * sizeof(T));
    return result;
  }
  void store(T* p) const { *reinterpret_cast<Anywhere*>(p) = v; }
  void store_first(T* p, int n) const { std::memcpy(p, &v, n * sizeof(T)); }

  static Index load_index(const int32_t* p) {
    Index i;
    std::memcpy(&i, p, sizeof(i));
    return i;
  }
  static Index advance(Index i, int32_t by) { return i + by; }
#if defined(POLYPHASE_NEON)
  // Places of bytes: of element n, the four from 4 n on.
  static constexpr bool kPicks = sizeof(T) == 4;
  static constexpr int32_t place(int32_t element) { return kPicks ? element * 0x04040404 + 0x03020100 : element; }
  static Index further(Index places, int32_t by) { return places + (kPicks ? by * 0x04040404 : by); }
  static Vec pick(Vec low, Vec high, Index places) {
    using neon::Bytes16;
    return {reinterpret_cast<Register>(neon::pick(reinterpret_cast<Bytes16>(low.v), reinterpret_cast<Bytes16>(high.v),
                                                  reinterpret_cast<Bytes16>(places)))};
  }
  // Four lanes from the first of a list's places: there is room for no more.
  static Vec load_fours(const T* p, const int32_t* at, int) { return load(p + at[0]); }
#else
  static constexpr bool kPicks = false;
  static constexpr int32_t place(int32_t element) { return element; }
  static Index further(Index places, int32_t by) { return advance(places, by); }
#endif
  static Vec pick(const T* window, Index places) {
    if constexpr (kPicks) {
      return pick(load(window), load(window + kLanes), places);
    } else {
      return gather(window, places);
    }
  }
  // Written out: a loop over lanes goes through memory at -O1.
  static Vec gather(const T* p, Index i) {
    if constexpr (kLanes == 4) {
      return {Register{p[i[0]], p[i[1]], p[i[2]], p[i[3]]}};
    } else {
      return {Register{p[i[0]], p[i[1]]}};
    }
  }

#if defined(POLYPHASE_NEON)
  // What the positions of warps need, of floats. A mask is all bits of a lane, or none.
  using Mask = Index;
  Vec minus(Vec other) const { return {v - other.v}; }
  Vec distance(Vec other) const { return {neon::distance(v, other.v)}; }
  Vec lesser(Vec other) const { return {neon::lesser(v, other.v)}; }
  Vec greater(Vec other) const { return {neon::greater(v, other.v)}; }
  Vec abs() const { return {neon::absolute(v)}; }
  Mask at_most(Vec most) const { return v <= most.v; }
  // Numbers of positions that are no numbers: sums and products of them begin anew where they do not fit.
  static Index times(Index i, int32_t by) {
    return reinterpret_cast<Index>(reinterpret_cast<neon::Counts>(i) * static_cast<uint32_t>(by));
  }
  static Index greater(Index a, Index b) {
    return reinterpret_cast<Index>(neon::greater(reinterpret_cast<neon::Counts>(a), reinterpret_cast<neon::Counts>(b)));
  }
  static Mask within(Index i, int32_t last) { return reinterpret_cast<neon::Counts>(i) <= static_cast<uint32_t>(last); }
  static Mask both(Mask a, Mask b) { return a & b; }
  Mask between(Vec least, Vec most) const { return (v >= least.v) & (v < most.v); }
  static void store_index(Index i, int32_t* p) { neon::store(p, i); }
  static Index truncated(Vec x) { return __builtin_convertvector(x.v, Index); }
  static Vec of_index(Index i) { return {__builtin_convertvector(i, Register)}; }
  // Conversions are slow. In a float from 2^23 on, the last bit is 1: a number is added to the middle of such floats, and then
  // found, rounded, in the last bits. For numbers below 2^22.
  struct Rounded {
    static constexpr float kMiddle = 0x1.8p23f;
    Register sum;
    static Rounded of(Vec x) { return {x.v + kMiddle}; }
    Index index() const {
      return reinterpret_cast<Index>(reinterpret_cast<neon::Counts>(sum) - __builtin_bit_cast(uint32_t, kMiddle));
    }
    Vec value() const { return {sum - kMiddle}; }
  };
  Vec replaced(Mask mask, Vec by) const {
    return {reinterpret_cast<Register>((reinterpret_cast<Mask>(by.v) & mask) | (reinterpret_cast<Mask>(v) & ~mask))};
  }
  static Index sum(Index a, Index b) {
    return reinterpret_cast<Index>(reinterpret_cast<neon::Counts>(a) + reinterpret_cast<neon::Counts>(b));
  }
#else
  static Index sum(Index a, Index b) { return a + b; }
#endif

  struct Pair;
  static Pair gather_pairs(const T* p, Index i) { return {gather(p, i), gather(p + 1, i)}; }
  static Pair load_pairs(const T* p) { return unzipped(load(p), load(p + kLanes)); }
  static Pair unzipped(Vec low, Vec high);
  Vec where(Index condition) const { return kept(condition != 0); }

  // Of lanes whose bits are all the same.
  template <class Bits>
  static bool all(Bits lanes) {
#if defined(POLYPHASE_NEON)
    return neon::all(reinterpret_cast<neon::Ints>(lanes));
#else
    typedef int64_t Longs __attribute__((vector_size(16)));
    const Longs halves = reinterpret_cast<Longs>(lanes);
    return (halves[0] & halves[1]) == -1;
#endif
  }

  bool has_nan() const { return !all(v == v); }
  bool lies_between(Vec least, Vec most) const { return all((v >= least.v) & (v < most.v)); }
  Vec where_nonzero(Vec weight) const { return kept(weight.v != 0); }

 private:
  // Of lanes whose bits are all the same.
  template <class Bits>
  Vec kept(Bits lanes) const {
    return {reinterpret_cast<Register>(reinterpret_cast<Bits>(v) & lanes)};
  }
};

template <class T>
struct Vec<T>::Pair {
  Vec first, second;
};
template <class T>
inline typename Vec<T>::Pair Vec<T>::unzipped(Vec low, Vec high) {
  if constexpr (kLanes == 4) {
    return {{Register{low.v[0], low.v[2], high.v[0], high.v[2]}}, {Register{low.v[1], low.v[3], high.v[1], high.v[3]}}};
  } else {
    return {{Register{low.v[0], high.v[0]}}, {Register{low.v[1], high.v[1]}}};
  }
}

#if defined(POLYPHASE_NEON)
// Both of a lane by one load.
template <>
inline Vec<float>::Pair Vec<float>::gather_pairs(const float* p, Index i) {
  const auto two = [&](int a, int b) {
    neon::Doubles both;
    std::memcpy(&both, p + a, 8);
    std::memcpy(reinterpret_cast<char*>(&both) + 8, p + b, 8);
    return Vec{reinterpret_cast<Register>(both)};
  };
  return unzipped(two(i[0], i[1]), two(i[2], i[3]));
}

inline void transpose_fours(Vec<float>& p, Vec<float>& q, Vec<float>& r, Vec<float>& s) {
  Quad a = {p.v}, b = {q.v}, c = {r.v}, d = {s.v};
  transpose(a, b, c, d);
  p.v = a.v, q.v = b.v, r.v = c.v, s.v = d.v;
}
#endif

template <class T>
inline Vec<T> multiply_add(Vec<T> a, Vec<T> b, Vec<T> c) {
#if defined(POLYPHASE_NEON)
  return {neon::multiply_add(a.v, b.v, c.v)};
#else
  return {a.v * b.v + c.v};
#endif
}

#endif

}  // namespace polyphase
