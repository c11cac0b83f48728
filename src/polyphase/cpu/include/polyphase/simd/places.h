#pragma once

#if defined(__AVX2__)

#include <cstdint>
#include <cstring>

#include "polyphase/simd/intrinsics.h"

namespace polyphase {

// Eight lanes from anywhere, by plain loads: current microcode makes gathers slow on processors without VBMI.
struct Places {
  alignas(32) int32_t at[8];

  explicit Places(__m256i i) { _mm256_store_si256(reinterpret_cast<__m256i*>(at), i); }

  __m256 floats(const float* p) const {
    return _mm256_setr_ps(p[at[0]], p[at[1]], p[at[2]], p[at[3]], p[at[4]], p[at[5]], p[at[6]], p[at[7]]);
  }
  // Four bytes for each lane.
  __m256i bytes(const uint8_t* p) const {
    const auto word = [&](int l) __attribute__((always_inline)) {
      int32_t four;
      std::memcpy(&four, p + at[l], sizeof(four));
      return four;
    };
    return _mm256_setr_epi32(word(0), word(1), word(2), word(3), word(4), word(5), word(6), word(7));
  }
  // Lane l of both is p[at[l]] and p[at[l] + 1].
  struct Pairs {
    __m256 first, second;
  };
  Pairs pairs(const float* p) const {
    const auto two = [&](int l) __attribute__((always_inline)) {
      const __m128i low = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + at[l]));
      return _mm_loadh_pi(_mm_castsi128_ps(low), reinterpret_cast<const __m64*>(p + at[l + 1]));
    };
    const __m256 a = _mm256_insertf128_ps(_mm256_castps128_ps256(two(0)), two(4), 1);
    const __m256 b = _mm256_insertf128_ps(_mm256_castps128_ps256(two(2)), two(6), 1);
    return {_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd)};
  }
};

}  // namespace polyphase

#endif
