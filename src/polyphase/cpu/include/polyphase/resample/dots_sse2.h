// Dot products of uint8 pixels (byte_dots.h) by SSE2, which every x86-64 has.
#pragma once

#include "polyphase/resample/dots.h"
#include "polyphase/simd/bytes.h"

namespace polyphase {

struct Dots {
  using Register = __m128i;
  static constexpr int kPixels = 4;
  static constexpr int kPlaneTaps = 8, kPixelTaps = 2;
  static constexpr int kPlaneChunk = 16, kPixelChunk = 16;
  static constexpr int kPixelLoad = 8;
  static constexpr int kLeastUnrolled = 1, kUnrolled = 3;

  POLYPHASE_BLOCK static Register plane_sum(const uint8_t* in, const uint8_t* weights, int chunks) {
    Register total = _mm_setzero_si128();
    for (int g = 0; g < chunks; ++g, in += kPlaneTaps, weights += kPlaneChunk) {
      const Register eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(in));
      total = Bytes::dot(total, Bytes::interleave_low(eight, _mm_setzero_si128()), Bytes::load(weights));
    }
    return total;
  }

  // The two taps of a channel are neighbours, as `Bytes::dot` takes them; all channels have the same weights.
  static void put_pixel_weight(uint8_t* chunk, int64_t tap, int16_t weight) {
    for (int c = 0; c < 4; ++c) std::memcpy(chunk + 4 * c + 2 * tap, &weight, 2);
  }
  static void fill_shuffle(int, uint8_t*) {}
  static uint8_t interleaved(int, int) { return 0; }

  template <int kChunks>
  POLYPHASE_BLOCK static void pixels(const uint8_t* in, const int32_t* starts, const uint8_t* weights, int any_chunks,
                                     int channels, int precision, const DotTables&, uint8_t* out, int64_t n) {
    const int chunks = kChunks == 0 ? any_chunks : kChunks;
    const int64_t pixel = channels;  // bytes
    const Register bits = Bytes::broadcast(precision);
    const auto add_chunk = [&](Register sum, const uint8_t* pixels, const uint8_t* chunk) {
      const Register both = Bytes::interleave_low(load4(pixels), load4(pixels + pixel));
      return Bytes::dot(sum, Bytes::interleave_low(both, _mm_setzero_si128()), Bytes::load(chunk));
    };
    Register p = Bytes::broadcast(1 << (precision - 1)), q = p, r = p, s = p;
    sum_four<kPixelChunk>(in, starts, kPixelTaps * pixel, weights, chunks, add_chunk, p, q, r, s);
    uint8_t buffer[16];  // four bytes for each of four outputs
    Bytes::store(buffer, Bytes::pack(Bytes::shift_right(p, bits), Bytes::shift_right(q, bits),
                                     Bytes::shift_right(r, bits), Bytes::shift_right(s, bits)));
    const auto put = [&](auto bytes) {  // a constant size is one or two moves
      for (int64_t i = 0; i < n; ++i) std::memcpy(out + i * bytes, buffer + 4 * i, bytes);
    };
    channels == 2 ? put(Constant<2>()) : channels == 3 ? put(Constant<3>()) : put(Constant<4>());
  }

  static Register finish_plane(const Register* r, int precision) {
    const Register u = _mm_add_epi32(_mm_unpacklo_epi32(r[0], r[1]), _mm_unpackhi_epi32(r[0], r[1]));
    const Register v = _mm_add_epi32(_mm_unpacklo_epi32(r[2], r[3]), _mm_unpackhi_epi32(r[2], r[3]));
    const Register sums = _mm_add_epi32(_mm_unpacklo_epi64(u, v), _mm_unpackhi_epi64(u, v));
    const Register rounded = _mm_add_epi32(sums, Bytes::broadcast(1 << (precision - 1)));
    const Register shifted = Bytes::shift_right(rounded, Bytes::broadcast(precision));
    return Bytes::pack(shifted, shifted, shifted, shifted);
  }

  static void store(uint8_t* out, int64_t n, Register bytes) { Bytes::store_first(out, static_cast<int>(n), bytes); }

 private:
  static Register load4(const uint8_t* p) {
    int32_t bytes;
    std::memcpy(&bytes, p, 4);
    return _mm_cvtsi32_si128(bytes);
  }
};

}  // namespace polyphase
