// Dot products of uint8 pixels (byte_dots.h) by NEON.
#pragma once

#include "polyphase/resample/dots.h"
#include "polyphase/simd/bytes.h"

namespace polyphase {

struct Dots {
  using Register = Bytes::Register;
  static constexpr int kPixels = 4;
  static constexpr int kPlaneTaps = 8, kPixelTaps = 4;
  static constexpr int kPlaneChunk = 16, kPixelChunk = 8;
  static constexpr int kPixelLoad = 16;
  static constexpr int kLeastUnrolled = 3, kUnrolled = 5;

  POLYPHASE_BLOCK static Register plane_sum(const uint8_t* in, const uint8_t* weights, int chunks) {
    Register total = Bytes::broadcast(0);
    for (int g = 0; g < chunks; ++g, in += kPlaneTaps, weights += kPlaneChunk) {
      const neon::Shorts eight = neon::widened_low(load8(in));
      total = Bytes::dot(total, reinterpret_cast<Register>(eight), Bytes::load(weights));
    }
    return total;
  }

  // The values of a chunk, tap after tap: four lanes each, one for a channel; two taps in each of two registers.
  static void put_pixel_weight(uint8_t* chunk, int64_t tap, int16_t weight) { std::memcpy(chunk + 2 * tap, &weight, 2); }
  static void fill_shuffle(int channels, uint8_t* table) {
    for (int i = 0; i < 32; ++i) table[i] = Bytes::kNone;
    for (int t = 0; t < 4; ++t) {
      for (int c = 0; c < channels; ++c) table[8 * t + 2 * c] = static_cast<uint8_t>(t * channels + c);
    }
  }
  template <int kChunks>
  POLYPHASE_BLOCK static void pixels(const uint8_t* in, const int32_t* starts, const uint8_t* weights, int any_chunks,
                                     int channels, int precision, const DotTables& tables, uint8_t* out, int64_t n) {
    const int chunks = kChunks == 0 ? any_chunks : kChunks;
    const int64_t step = kPixelTaps * channels;
    const Register first = Bytes::load(tables.shuffle), second = Bytes::load(tables.shuffle + 16);
    const Register bits = Bytes::broadcast(precision);
    const auto add_chunk = [&](Register sum, const uint8_t* pixels, const uint8_t* chunk) {
      using namespace neon;
      const Register window = Bytes::load(pixels);
      const Shorts two = Bytes::shorts(pick(window, first)), others = Bytes::shorts(pick(window, second));
      const Shorts four = Bytes::shorts(load8(chunk));
      Ints total = Bytes::sums(sum);
      total = add_products_high<1>(add_products_low<0>(total, two, four), two, four);
      total = add_products_high<3>(add_products_low<2>(total, others, four), others, four);
      return Bytes::of(total);
    };
    Register p = Bytes::broadcast(1 << (precision - 1)), q = p, r = p, s = p;
    sum_four<kPixelChunk>(in, starts, step, weights, chunks, add_chunk, p, q, r, s);
    const Register fours = Bytes::pack(Bytes::shift_right(p, bits), Bytes::shift_right(q, bits),
                                       Bytes::shift_right(r, bits), Bytes::shift_right(s, bits));
    store(out, n * channels, neon::pick(fours, Bytes::load(tables.interleave)));
  }
  static uint8_t interleaved(int output, int channel) { return static_cast<uint8_t>(4 * (output % 4) + channel); }

  static Register finish_plane(const Register* r, int precision) {
    using neon::added_pairs;
    const neon::Ints sums = added_pairs(added_pairs(Bytes::sums(r[0]), Bytes::sums(r[1])),
                                        added_pairs(Bytes::sums(r[2]), Bytes::sums(r[3])));
    const neon::Ints shifted = (sums + (1 << (precision - 1))) >> precision;
    return neon::narrowed(shifted, shifted, shifted, shifted);
  }

  static void store(uint8_t* out, int64_t n, Register bytes) {
    switch (n) {  // a constant size is one or two moves
      case 4: std::memcpy(out, &bytes, 4); break;
      case 12: std::memcpy(out, &bytes, 12); break;
      default: std::memcpy(out, &bytes, static_cast<size_t>(n));
    }
  }

 private:
  static Register load8(const uint8_t* p) {
    uint64_t bytes;
    std::memcpy(&bytes, p, 8);
    typedef uint64_t Longs __attribute__((vector_size(16)));
    return reinterpret_cast<Register>(Longs{bytes});
  }
};

}  // namespace polyphase
