// Rows of one element type as rows of another, as torch converts them.
#pragma once

#include "polyphase/core/scalar.h"
#include "polyphase/simd/neon.h"

#if defined(__F16C__) || defined(__AVX512BW__)
#include "polyphase/simd/intrinsics.h"
#endif

namespace polyphase {

inline void convert(const bfloat16* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = from[i];
}

inline void convert(const float* from, bfloat16* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = from[i];
}

#ifdef __AVX512BW__

inline __mmask16 first_lanes(int64_t count) {
  return count < 16 ? static_cast<__mmask16>((1u << count) - 1) : static_cast<__mmask16>(0xffff);
}

inline void convert(const half* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 lanes = first_lanes(n - i);
    const __m512i row = _mm512_maskz_loadu_epi16(lanes, from + i);
    _mm512_mask_storeu_ps(to + i, lanes, _mm512_cvtph_ps(_mm512_castsi512_si256(row)));
  }
}

inline void convert(const float* from, half* to, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 lanes = first_lanes(n - i);
    const __m512 row = _mm512_maskz_loadu_ps(lanes, from + i);
    const __m256i halves = _mm512_cvtps_ph(row, _MM_FROUND_TO_NEAREST_INT);
    _mm512_mask_storeu_epi16(to + i, lanes, _mm512_castsi256_si512(halves));
  }
}

#else

inline void convert(const half* from, float* to, int64_t n) {
  int64_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= n; i += 8) {
    const __m128i row = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(row));
  }
#endif
  for (; i < n; ++i) to[i] = from[i];
}

inline void convert(const float* from, half* to, int64_t n) {
  int64_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= n; i += 8) {
    const __m128i row = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), row);
  }
#endif
  for (; i < n; ++i) to[i] = from[i];
}

#endif

inline void convert(const float* from, uint8_t* to, int64_t n) {
  int64_t i = 0;
#ifdef __AVX512BW__
  for (; i < n; i += 16) {
    const __mmask16 lanes = first_lanes(n - i);
    // NaN becomes 0: of NaN and another, max is the second.
    const __m512 least = _mm512_max_ps(_mm512_maskz_loadu_ps(lanes, from + i), _mm512_setzero_ps());
    const __m512i nearest = _mm512_cvtps_epi32(_mm512_min_ps(least, _mm512_set1_ps(255)));
    _mm512_mask_cvtepi32_storeu_epi8(to + i, lanes, nearest);
  }
#elif defined(POLYPHASE_NEON)
  const auto nearest = [from](int64_t at) { return neon::nearest(neon::load<neon::Floats>(from + at)); };
  for (; i + 16 <= n; i += 16) {
    neon::store(to + i, neon::narrowed(nearest(i), nearest(i + 4), nearest(i + 8), nearest(i + 12)));
  }
#endif
  for (; i < n; ++i) to[i] = saturated(from[i]);
}

// Between integers and the floats they are summed in.
template <class From, class To>
inline void convert(const From* from, To* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (is_floating<From>) {
      to[i] = saturated<To>(from[i]);
    } else {
      to[i] = static_cast<To>(from[i]);
    }
  }
}

}  // namespace polyphase
