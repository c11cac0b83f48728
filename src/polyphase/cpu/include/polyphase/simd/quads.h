// Four floats from each of two places, and eight such places at a time: plain loads of 16 bytes, sorted in registers.
#pragma once

#if defined(__AVX2__)

#include "polyphase/core/abi.h"
#include "polyphase/simd/intrinsics.h"
#include "polyphase/simd/vector.h"

namespace polyphase {

// Four floats of a pixel, and four of the fourth pixel after it.
struct Quads {
  static constexpr int kPixels = 8;
  __m256 v;

  static Quads zero() { return {_mm256_setzero_ps()}; }
  static Quads load(const float* p) { return {_mm256_loadu_ps(p)}; }
  // 16 bytes of each.
  static Quads load(const void* first, const void* second) {
    const __m256i low = _mm256_castsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(first)));
    return {_mm256_castsi256_ps(_mm256_inserti128_si256(low, _mm_loadu_si128(static_cast<const __m128i*>(second)), 1))};
  }
  // Four floats from each of the places first[0] and first[4].
  static Quads load_pixels(const float* from, const int32_t* first) { return load(from + first[0], from + first[4]); }
  void store(float* p) const { _mm256_storeu_ps(p, v); }
  bool has_nan() const { return _mm256_movemask_ps(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)) != 0; }
  // Of each four: element j four times, and elements a, b, c and d.
  template <int j>
  Quads all() const {
    return picked<j, j, j, j>();
  }
  template <int a, int b, int c, int d>
  Quads picked() const {
    return {_mm256_permute_ps(v, a | b << 2 | c << 4 | d << 6)};
  }
};
inline Quads multiply_add(Quads a, Quads b, Quads c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }

// Of both pixels, element j of the i-th becomes element i of the j-th.
inline void transpose(Quads& p, Quads& q, Quads& r, Quads& s) {
  const __m256 a = _mm256_unpacklo_ps(p.v, q.v), b = _mm256_unpackhi_ps(p.v, q.v);
  const __m256 c = _mm256_unpacklo_ps(r.v, s.v), d = _mm256_unpackhi_ps(r.v, s.v);
  p.v = _mm256_shuffle_ps(a, c, 0x44);
  q.v = _mm256_shuffle_ps(a, c, 0xee);
  r.v = _mm256_shuffle_ps(b, d, 0x44);
  s.v = _mm256_shuffle_ps(b, d, 0xee);
}

#if defined(__AVX512F__)

// As `Quads`, of four pixels: every fourth of sixteen.
struct WideQuads {
  static constexpr int kPixels = 16;
  __m512 v;

  static WideQuads zero() { return {_mm512_setzero_ps()}; }
  static WideQuads load(const float* p) { return {_mm512_loadu_ps(p)}; }
  POLYPHASE_BLOCK static WideQuads load_pixels(const float* from, const int32_t* first) {
    __m512 all = _mm512_castps128_ps512(_mm_loadu_ps(from + first[0]));
    all = _mm512_insertf32x4(all, _mm_loadu_ps(from + first[4]), 1);
    all = _mm512_insertf32x4(all, _mm_loadu_ps(from + first[8]), 2);
    return {_mm512_insertf32x4(all, _mm_loadu_ps(from + first[12]), 3)};
  }
  void store(float* p) const { _mm512_storeu_ps(p, v); }
  bool has_nan() const { return _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q) != 0; }
  template <int j>
  WideQuads all() const {
    return {_mm512_permute_ps(v, j | j << 2 | j << 4 | j << 6)};
  }
};
inline WideQuads multiply_add(WideQuads a, WideQuads b, WideQuads c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }

inline void transpose(WideQuads& p, WideQuads& q, WideQuads& r, WideQuads& s) {
  Vec<float> a = {p.v}, b = {q.v}, c = {r.v}, d = {s.v};
  transpose_fours(a, b, c, d);
  p.v = a.v, q.v = b.v, r.v = c.v, s.v = d.v;
}

using WidestQuads = WideQuads;

#else

using WidestQuads = Quads;

#endif

// Eight pixels: p has pixels 0 and 4, q 1 and 5, and so on; once transposed, p has the first element of each, in their order.
struct EightQuads {
  Quads p, q, r, s;

  template <class T>
  POLYPHASE_BLOCK static EightQuads load(const T* from, const int64_t (&offsets)[8]) {
    return {Quads::load(from + offsets[0], from + offsets[4]), Quads::load(from + offsets[1], from + offsets[5]),
            Quads::load(from + offsets[2], from + offsets[6]), Quads::load(from + offsets[3], from + offsets[7])};
  }
  template <class T>
  POLYPHASE_BLOCK static EightQuads load_transposed(const T* from, const int64_t (&offsets)[8]) {
    EightQuads result = load(from, offsets);
    transpose(result.p, result.q, result.r, result.s);
    return result;
  }
};

// A float from each of eight places, in their order. Loads that fill a register and blends leave the shuffles' port alone.
POLYPHASE_BLOCK Quads load_eight(const float* from, const int64_t (&offsets)[8]) {
  const auto load = [&](int i) __attribute__((always_inline)) { return _mm256_broadcast_ss(from + offsets[i]); };
  const __m256 a = _mm256_blend_ps(load(0), load(1), 0xaa), b = _mm256_blend_ps(load(2), load(3), 0xaa);
  const __m256 c = _mm256_blend_ps(load(4), load(5), 0xaa), d = _mm256_blend_ps(load(6), load(7), 0xaa);
  return {_mm256_blend_ps(_mm256_blend_ps(a, b, 0xcc), _mm256_blend_ps(c, d, 0xcc), 0xf0)};
}

}  // namespace polyphase

#endif
