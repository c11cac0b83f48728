// Vectors of AVX-512: `vector.h` says what they are.
#pragma once

#include "polyphase/simd/intrinsics.h"
#include "polyphase/simd/places.h"
#include "polyphase/simd/rounded.h"

namespace polyphase {

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

  // What the positions of warps need, as floats have it.
  using Mask = __mmask8;
  using Rounded = RoundedByConversion<Vec>;
  static Index sum(Index a, Index b) { return _mm256_add_epi32(a, b); }
  static Index times(Index i, int32_t by) { return _mm256_mullo_epi32(i, _mm256_set1_epi32(by)); }
  static void store_index(Index i, int32_t* p) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), i); }
  static Index truncated(Vec x) { return _mm512_cvttpd_epi32(x.v); }
  static Index nearest(Vec x) { return _mm512_cvtpd_epi32(x.v); }
  static Vec of_index(Index i) { return {_mm512_cvtepi32_pd(i)}; }
  static Mask within(Index i, int32_t last) {
    return static_cast<Mask>(_mm512_cmple_epu32_mask(_mm512_castsi256_si512(i), _mm512_set1_epi32(last)));
  }
  static Mask both(Mask a, Mask b) { return a & b; }
  static bool all(Mask mask) { return mask == 0xff; }
  static Index greater(Index a, Index b) { return _mm256_max_epu32(a, b); }
  Vec minus(Vec other) const { return {_mm512_sub_pd(v, other.v)}; }
  Vec abs() const { return {_mm512_abs_pd(v)}; }
  Vec lesser(Vec other) const { return {_mm512_min_pd(v, other.v)}; }
  Vec greater(Vec other) const { return {_mm512_max_pd(v, other.v)}; }
  Vec distance(Vec other) const { return minus(other).abs(); }
  Vec replaced(Mask mask, Vec by) const { return {_mm512_mask_mov_pd(v, mask, by.v)}; }
  Mask at_most(Vec most) const { return _mm512_cmp_pd_mask(v, most.v, _CMP_LE_OQ); }
  struct Pair;
  static Pair load_pairs(const double* p);

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
struct Vec<double>::Pair {
  Vec first, second;
};
inline Vec<double>::Pair Vec<double>::load_pairs(const double* p) {
  const __m512d low = _mm512_loadu_pd(p), high = _mm512_loadu_pd(p + 8);
  const __m512i even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14), odd = _mm512_add_epi64(even, _mm512_set1_epi64(1));
  return {{_mm512_permutex2var_pd(low, even, high)}, {_mm512_permutex2var_pd(low, odd, high)}};
}
inline Vec<float> multiply_add(Vec<float> a, Vec<float> b, Vec<float> c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Vec<double> multiply_add(Vec<double> a, Vec<double> b, Vec<double> c) { return {_mm512_fmadd_pd(a.v, b.v, c.v)}; }

}  // namespace polyphase
