// Dot products of uint8 planes (byte_dots.h) by AVX2.
#pragma once

#include "polyphase/resample/dots.h"
#include "polyphase/simd/bytes.h"

namespace polyphase {

struct Dots {
  using Register = __m256i;
  static constexpr int kPlaneTaps = 16;
  static constexpr int kPlaneChunk = 32;
  static constexpr int kPixels = 0, kPixelTaps = 0, kPixelChunk = 0;  // pixels go by four_rows.h

  POLYPHASE_BLOCK static Register plane_sum(const uint8_t* in, const uint8_t* weights, int chunks) {
    Register total = _mm256_setzero_si256();
    for (int g = 0; g < chunks; ++g, in += kPlaneTaps, weights += kPlaneChunk) {
      const Register v = _mm256_cvtepu8_epi16(load16(in));
      total = _mm256_add_epi32(total, _mm256_madd_epi16(v, Bytes::load(weights)));
    }
    return total;
  }

  static __m128i finish_plane(const Register* r, int precision) {
    const Register h = _mm256_hadd_epi32(_mm256_hadd_epi32(r[0], r[1]), _mm256_hadd_epi32(r[2], r[3]));
    return rounded(_mm_add_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1)), precision);
  }

  static void store(uint8_t* out, int64_t n, __m128i bytes) {
    alignas(16) uint8_t buffer[16];
    _mm_store_si128(reinterpret_cast<__m128i*>(buffer), bytes);
    n == 4 ? std::memcpy(out, buffer, 4) : std::memcpy(out, buffer, static_cast<size_t>(n));  // one move, mostly
  }

 private:
  static __m128i load16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }

  static __m128i rounded(__m128i sums, int precision) {
    const __m128i shifted = _mm_srai_epi32(_mm_add_epi32(sums, _mm_set1_epi32(1 << (precision - 1))), precision);
    const __m128i words = _mm_packs_epi32(shifted, _mm_setzero_si128());
    return _mm_packus_epi16(words, words);
  }
};

}  // namespace polyphase
