// Dot products of uint8 pixels (byte_dots.h) by AVX-512.
#pragma once

#include "polyphase/resample/dots.h"
#include "polyphase/simd/bytes.h"

namespace polyphase {

struct Dots {
  using Register = __m512i;
  static constexpr int kPlaneOutputs = 2;                   // of a plane in one register
  static constexpr int kPixels = 16;                        // outputs that are made together, of several channels
  static constexpr int kPlaneTaps = 16, kPixelTaps = 8;     // of a chunk
  static constexpr int kPlaneChunk = 64, kPixelChunk = 16;  // bytes of its weights
  static constexpr int kPixelLoad = 32;                     // bytes that are read for it
  static constexpr int kLeastUnrolled = 2, kUnrolled = 3;   // so many chunks, of pixels

  POLYPHASE_BLOCK static Register plane_sum(const uint8_t* in, const int32_t* starts, const uint8_t* weights, int chunks) {
    Register total = _mm512_setzero_si512();
    for (int g = 0; g < chunks; ++g, in += kPlaneTaps, weights += kPlaneChunk) {
      const __m256i first = _mm256_castsi128_si256(load16(in + starts[0]));
      const Register v = _mm512_cvtepu8_epi16(_mm256_inserti128_si256(first, load16(in + starts[1]), 1));
      total = _mm512_dpwssd_epi32(total, v, _mm512_loadu_si512(weights));
    }
    return total;
  }

  // The values of a chunk, channel after channel. All channels have the same weights.
  static void put_pixel_weight(uint8_t* chunk, int64_t tap, int16_t weight) { std::memcpy(chunk + 2 * tap, &weight, 2); }
  static void fill_shuffle(int channels, uint8_t* table) {
    std::memset(table, kPixelLoad, 64);  // beyond what is loaded: 0
    for (int c = 0; c < channels; ++c) {
      for (int t = 0; t < 8; ++t) table[16 * c + 2 * t] = static_cast<uint8_t>(t * channels + c);
    }
  }
  // The pixels of kPixels outputs, or of the first n.
  template <int kChunks>
  POLYPHASE_BLOCK static void pixels(const uint8_t* in, const int32_t* starts, const uint8_t* weights, int any_chunks,
                                     int channels, int precision, const DotTables& tables, uint8_t* out, int64_t n) {
    const int chunks = kChunks == 0 ? any_chunks : kChunks;
    const int64_t step = kPixelTaps * channels, stride = static_cast<int64_t>(chunks) * kPixelChunk;
    const Register by_channel = _mm512_loadu_si512(tables.shuffle);
    const Register half = _mm512_maskz_set1_epi32(0x1111, 1 << (precision - 1));  // in one of the four lanes to be added
    const Register bits = Bytes::broadcast(precision);
    const auto add_chunk = [&](Register sum, const uint8_t* pixels, const uint8_t* chunk) {
      const Register window = _mm512_zextsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(pixels)));
      const Register values = _mm512_permutexvar_epi8(by_channel, window);
      return _mm512_dpwssd_epi32(sum, values, _mm512_broadcast_i32x4(load16(chunk)));
    };
    Register sums[4];
    for (int i = 0; i < 4; ++i, starts += 4, weights += 4 * stride) {
      Register p = half, q = half, r = half, s = half;
      sum_four<kPixelChunk>(in, starts, step, weights, chunks, add_chunk, p, q, r, s);
      sums[i] = Bytes::shift_right(added(p, q, r, s), bits);
    }
    const Register planes = Bytes::pack(sums[0], sums[1], sums[2], sums[3]);
    Bytes::store_first(out, static_cast<int>(n) * channels,
                       _mm512_permutexvar_epi8(_mm512_loadu_si512(tables.interleave), planes));
  }
  // Channel after channel, 16 outputs each, to channels side by side.
  static uint8_t interleaved(int output, int channel) { return static_cast<uint8_t>(16 * channel + output); }

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
