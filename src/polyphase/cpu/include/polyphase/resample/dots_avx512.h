// Dot products of uint8 planes (byte_dots.h) by AVX-512.
#pragma once

#include "polyphase/resample/dots.h"
#include "polyphase/simd/bytes.h"

namespace polyphase {

struct Dots {
  using Register = __m512i;
  static constexpr int kPlaneOutputs = 2;  // of a plane in one register
  static constexpr int kPlaneTaps = 16;    // of a chunk
  static constexpr int kPlaneChunk = 64;   // bytes of its weights
  static constexpr int kPixels = 0, kPixelTaps = 0, kPixelChunk = 0;  // pixels go by four_rows.h

  POLYPHASE_BLOCK static Register plane_sum(const uint8_t* in, const int32_t* starts, const uint8_t* weights, int chunks) {
    Register total = _mm512_setzero_si512();
    for (int g = 0; g < chunks; ++g, in += kPlaneTaps, weights += kPlaneChunk) {
      const __m256i first = _mm256_castsi128_si256(load16(in + starts[0]));
      const Register v = _mm512_cvtepu8_epi16(_mm256_inserti128_si256(first, load16(in + starts[1]), 1));
      total = _mm512_dpwssd_epi32(total, v, _mm512_loadu_si512(weights));
    }
    return total;
  }

  // Register r holds outputs r and r + 4 of a plane.
  static __m128i finish_plane(const Register* r, int precision) {
    const Register s = added(r[0], r[1], r[2], r[3]);
    const Register pairs = _mm512_add_epi32(s, _mm512_shuffle_i32x4(s, s, _MM_SHUFFLE(2, 3, 0, 1)));
    const __m256i eight = _mm512_castsi512_si256(_mm512_shuffle_i32x4(pairs, pairs, _MM_SHUFFLE(3, 3, 2, 0)));
    const __m256i rounded = _mm256_add_epi32(eight, _mm256_set1_epi32(1 << (precision - 1)));
    const __m256i sums = _mm256_srav_epi32(rounded, _mm256_set1_epi32(precision));
    const __m256i positive = _mm256_max_epi32(sums, _mm256_setzero_si256());
    return _mm512_cvtusepi32_epi8(_mm512_castsi256_si512(positive));
  }

  static void store(uint8_t* out, int64_t n, __m128i bytes) {
    _mm512_mask_storeu_epi8(out, static_cast<__mmask64>((1u << n) - 1), _mm512_castsi128_si512(bytes));
  }

 private:
  static __m128i load16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }

  // 32 bit lane 4 * g + i of the result: the sum of the four lanes of 128 bit group g of the i-th register.
  static Register added(Register p, Register q, Register r, Register s) {
    const Register u = _mm512_add_epi32(_mm512_unpacklo_epi32(p, q), _mm512_unpackhi_epi32(p, q));
    const Register v = _mm512_add_epi32(_mm512_unpacklo_epi32(r, s), _mm512_unpackhi_epi32(r, s));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(u, v), _mm512_unpackhi_epi64(u, v));
  }
};

}  // namespace polyphase
