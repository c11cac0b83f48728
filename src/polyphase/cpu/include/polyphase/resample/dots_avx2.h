// Dot products of uint8 pixels (byte_dots.h) by AVX2.
#pragma once

#include "polyphase/resample/dots.h"
#include "polyphase/simd/bytes.h"

namespace polyphase {

struct Dots {
  using Register = __m256i;
  static constexpr int kPlaneOutputs = 1;
  static constexpr int kPixels = 4;
  static constexpr int kPlaneTaps = 16, kPixelTaps = 4;
  static constexpr int kPlaneChunk = 32, kPixelChunk = 8;
  static constexpr int kPixelLoad = 16;
  static constexpr int kLeastUnrolled = 3, kUnrolled = 5;

  POLYPHASE_BLOCK static Register plane_sum(const uint8_t* in, const int32_t* starts, const uint8_t* weights, int chunks) {
    Register total = _mm256_setzero_si256();
    in += starts[0];
    for (int g = 0; g < chunks; ++g, in += kPlaneTaps, weights += kPlaneChunk) {
      const Register v = _mm256_cvtepu8_epi16(load16(in));
      total = _mm256_add_epi32(total, _mm256_madd_epi16(v, Bytes::load(weights)));
    }
    return total;
  }

  // The values of a chunk, channel after channel. All channels have the same weights, which are stored once and repeated
  // when they are loaded: so the tables of a large image stay in the first-level cache.
  static void put_pixel_weight(uint8_t* chunk, int64_t tap, int16_t weight) { std::memcpy(chunk + 2 * tap, &weight, 2); }
  static void fill_shuffle(int channels, uint8_t* table) {
    for (int i = 0; i < 32; ++i) table[i] = Bytes::kNone;
    for (int t = 0; t < 4; ++t) {
      for (int c = 0; c < channels; ++c) table[8 * c + 2 * t] = static_cast<uint8_t>(t * channels + c);
    }
  }
  template <int kChunks>
  POLYPHASE_BLOCK static void pixels(const uint8_t* in, const int32_t* starts, const uint8_t* weights, int any_chunks,
                                     int channels, int precision, const DotTables& tables, uint8_t* out, int64_t n) {
    const int chunks = kChunks == 0 ? any_chunks : kChunks;
    const int64_t step = kPixelTaps * channels;
    const Register by_channel = Bytes::load(tables.shuffle);
    const auto add_chunk = [&](Register sum, const uint8_t* pixels, const uint8_t* chunk) {
      const Register values = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load16(pixels)), by_channel);
      const Register each = _mm256_broadcastq_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(chunk)));
      sum = Bytes::dot(sum, values, each);
      asm("" : "+x"(sum));  // else GCC adds all products at the end, and has too few registers for them
      return sum;
    };
    Register p = _mm256_set1_epi64x(1 << (precision - 1)), q = p, r = p, s = p;  // half, in one of the two lanes to be added
    sum_four<kPixelChunk>(in, starts, step, weights, chunks, add_chunk, p, q, r, s);
    const Register bits = Bytes::broadcast(precision);
    const Register words = _mm256_packs_epi32(Bytes::shift_right(_mm256_hadd_epi32(p, q), bits),
                                              Bytes::shift_right(_mm256_hadd_epi32(r, s), bits));
    const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    store(out, n * channels, _mm_shuffle_epi8(bytes, load16(tables.interleave)));
  }
  // Two channels of four outputs, then the two others.
  static uint8_t interleaved(int output, int channel) {
    return static_cast<uint8_t>(8 * (channel / 2) + 2 * (output % 4) + channel % 2);
  }

  static __m128i finish_plane(const Register* r, int precision) {
    const Register h = _mm256_hadd_epi32(_mm256_hadd_epi32(r[0], r[1]), _mm256_hadd_epi32(r[2], r[3]));
    return rounded(_mm_add_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1)), precision);
  }

  static void store(uint8_t* out, int64_t n, __m128i bytes) {
    alignas(16) uint8_t buffer[16];
    _mm_store_si128(reinterpret_cast<__m128i*>(buffer), bytes);
    switch (n) {  // a constant size is one or two moves
      case 4: std::memcpy(out, buffer, 4); break;
      case 12: std::memcpy(out, buffer, 12); break;
      default: std::memcpy(out, buffer, static_cast<size_t>(n));
    }
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
