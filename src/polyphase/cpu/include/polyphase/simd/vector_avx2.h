// Vectors of AVX2: `vector.h` says what they are.
#pragma once

#include "polyphase/simd/intrinsics.h"
#include "polyphase/simd/places.h"
#include "polyphase/simd/rounded.h"

namespace polyphase {

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

  // What the positions of warps need, as floats have it. `within` is a mask of integers.
  using Mask = __m256i;
  using Rounded = RoundedByConversion<Vec>;
  static Index sum(Index a, Index b) { return _mm_add_epi32(a, b); }
  static Index times(Index i, int32_t by) { return _mm_mullo_epi32(i, _mm_set1_epi32(by)); }
  static void store_index(Index i, int32_t* p) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), i); }
  static Index truncated(Vec x) { return _mm256_cvttpd_epi32(x.v); }
  static Index nearest(Vec x) { return _mm256_cvtpd_epi32(x.v); }
  static Vec of_index(Index i) { return {_mm256_cvtepi32_pd(i)}; }
  static Index within(Index i, int32_t last) { return _mm_cmpeq_epi32(_mm_min_epu32(i, _mm_set1_epi32(last)), i); }
  static Index both(Index a, Index b) { return _mm_and_si128(a, b); }
  static bool all(Index mask) { return _mm_movemask_epi8(mask) == 0xffff; }
  static bool all(Mask mask) { return _mm256_movemask_epi8(mask) == -1; }
  static Index greater(Index a, Index b) { return _mm_max_epu32(a, b); }
  Vec minus(Vec other) const { return {_mm256_sub_pd(v, other.v)}; }
  Vec abs() const { return {_mm256_andnot_pd(_mm256_set1_pd(-0.0), v)}; }
  Vec lesser(Vec other) const { return {_mm256_min_pd(v, other.v)}; }
  Vec greater(Vec other) const { return {_mm256_max_pd(v, other.v)}; }
  Vec distance(Vec other) const { return minus(other).abs(); }
  Vec replaced(Mask mask, Vec by) const { return {_mm256_blendv_pd(v, by.v, _mm256_castsi256_pd(mask))}; }
  Mask at_most(Vec most) const { return _mm256_castpd_si256(_mm256_cmp_pd(v, most.v, _CMP_LE_OQ)); }
  struct Pair;
  static Pair load_pairs(const double* p);

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

struct Vec<double>::Pair {
  Vec first, second;
};
inline Vec<double>::Pair Vec<double>::load_pairs(const double* p) {
  const auto twos = [](const double* first, const double* second) __attribute__((always_inline)) {
    return _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_loadu_pd(first)), _mm_loadu_pd(second), 1);
  };
  const __m256d a = twos(p, p + 4), b = twos(p + 2, p + 6);
  return {{_mm256_unpacklo_pd(a, b)}, {_mm256_unpackhi_pd(a, b)}};
}
inline Vec<float> multiply_add(Vec<float> a, Vec<float> b, Vec<float> c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
inline Vec<double> multiply_add(Vec<double> a, Vec<double> b, Vec<double> c) { return {_mm256_fmadd_pd(a.v, b.v, c.v)}; }

}  // namespace polyphase
