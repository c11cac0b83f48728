// The taps of a tile in an image of pixels of up to four interleaved channels: a pixel is a Quad.
#pragma once

#include "polyphase/core/unroll.h"
#include "polyphase/simd/quad.h"
#include "polyphase/simd/vector.h"
#include "polyphase/warp/taps.h"

namespace polyphase {

// Four pixels, each with its channels, to rows of channels.
inline void store_channels(Quad a, Quad b, Quad c, Quad d, int i, int channels, float* const (&rows)[4]) {
  transpose(a, b, c, d);
  a.store(rows[0] + i);
  b.store(rows[1] + i);
  if (channels > 2) c.store(rows[2] + i);
  if (channels > 3) d.store(rows[3] + i);
}

// pixel(i) is a Quad.
template <class Pixel>
POLYPHASE_BLOCK void quads_to_rows(int channels, float* const (&rows)[4], Pixel pixel) {
  for (int i = 0; i < kTile; i += 4) {
    store_channels(pixel(i), pixel(i + 1), pixel(i + 2), pixel(i + 3), i, channels, rows);
  }
}

template <class Taps, class S, class Load>
POLYPHASE_BLOCK Quad sum_pixel(const S* image, const Taps& taps, int i, Load load) {
  Quad even = Quad::zero(), odd = Quad::zero();  // two sums: an addition to one need not wait for the other
#pragma GCC unroll 8
  for (int k = 0; k < Taps::kCount; k += 2) {
    even = multiply_add(load(image + taps.offset[k][i]), taps.weight[k][i], even);
    odd = multiply_add(load(image + taps.offset[k + 1][i]), taps.weight[k + 1][i], odd);
  }
  return {even.v + odd.v};
}

#if defined(__AVX2__)

// Pixels of bytes, all four of which can be read: many pixels at a time, each gathered as one number.
template <class Taps>
inline void sum_byte_pixels(const uint8_t* image, int channels, const Taps& taps, float* const (&rows)[4]) {
  using Lanes = Vec<float>;
  for (int b = 0; b < kTile; b += Lanes::kLanes) {
    Lanes red = Lanes::zero(), green = Lanes::zero(), blue = Lanes::zero(), alpha = Lanes::zero();
#pragma GCC unroll 4
    for (int k = 0; k < Taps::kCount; ++k) {
      const typename Lanes::Index pixels = Lanes::gather_bytes(image, Lanes::load_index(taps.offset[k] + b));
      const Lanes weight = Lanes::load(taps.weight[k] + b);
      red = multiply_add(Lanes::byte(pixels, 0), weight, red);
      green = multiply_add(Lanes::byte(pixels, 1), weight, green);
      if (channels > 2) blue = multiply_add(Lanes::byte(pixels, 2), weight, blue);
      if (channels > 3) alpha = multiply_add(Lanes::byte(pixels, 3), weight, alpha);
    }
    red.store(rows[0] + b);
    green.store(rows[1] + b);
    if (channels > 2) blue.store(rows[2] + b);
    if (channels > 3) alpha.store(rows[3] + b);
  }
}

#endif

#if defined(POLYPHASE_WARPS_IN_REGISTERS)

// A tile that nothing touches.
template <class T>
inline bool store_zeros(int64_t channels, T* out, int64_t stride) {
  for (int64_t c = 0; c < channels; ++c) {
    for (int i = 0; i < kTile; i += Vec<T>::kLanes) Vec<T>::zero().store(out + c * stride + i);
  }
  return true;
}

// Prefetches what the tile to the right will read, which comes a band of tiles later: its taps lie about as far from this
// tile's last ones as this tile's from its first. Every so many pixels are enough: the tiles of other rows prefetch what lies
// between.
template <int kEvery, class S>
POLYPHASE_BLOCK void prefetch_right(const S* image, const int32_t (&first)[kTile]) {
  const S* last = image + (first[kTile - 1] - first[0]);
  asm("" : "+r"(last));  // GCC would add what leads there to each of the offsets
  repeat<kTile / kEvery>([&](auto i) __attribute__((always_inline)) { __builtin_prefetch(last + first[i * kEvery]); });
}
template <class S>
POLYPHASE_BLOCK void prefetch_planes_right(const S* image, int64_t channel_stride, int64_t channels,
                                           const int32_t (&first)[kTile]) {
  for (int64_t c = 0; c < channels; ++c) prefetch_right<4>(image + c * channel_stride, first);
}

#endif

// The 2 x 2 taps of a tile's first `count` pixels, all of them inside the image.
template <class T>
struct SquareTapsOf {
  alignas(64) int32_t first[kTile];  // the upper left one's offset
  alignas(64) T weight[4][kTile];    // row by row
  int count;
};
using SquareTaps = SquareTapsOf<float>;

// The nearest pixels of a tile, as bits. Where none is inside, its place can be read all the same, and the value is 0.
struct NearestTaps {
  alignas(64) int32_t first[kTile];
  alignas(64) int32_t inside[kTile];  // all bits, or none
  int count;                          // pixels
};

#if defined(__AVX512F__)

// Weighs and sums pixels of up to four channels whose four taps lie in one vector: two of them from lane 0 on, the others
// from lane `third_tap` on. Four pixels are summed at a time.
class TapFours {
 public:
  using Lanes = Vec<float>;
  using Index = Lanes::Index;

  TapFours(int channels, int third_tap) : channels_(channels) {
    alignas(64) int32_t tap[16], half[2][16], quarter[2][16];
    for (int l = 0; l < 16; ++l) {
      const int pixel = l % 4, channel = l / 4;
      tap[l] = (l < third_tap ? l / channels : 2 + (l - third_tap) / channels) & 3;
      half[0][l] = l < 2 * channels ? l : Lanes::kLanes + l - 2 * channels;
      half[1][l] = half[0][l] + third_tap;
      quarter[0][l] = pixel / 2 * Lanes::kLanes + pixel % 2 * 2 * channels + channel;
      quarter[1][l] = quarter[0][l] + channels;
    }
    tap_ = Lanes::load_index(tap);
    for (int k = 0; k < 2; ++k) {
      half_[k] = Lanes::load_index(half[k]);
      quarter_[k] = Lanes::load_index(quarter[k]);
    }
  }

  // A tile; taps(i) are those of pixel i, unweighted. False where a value came out NaN.
  template <class Taps>
  POLYPHASE_BLOCK bool sum(const float (&weights)[4][kTile], Taps taps, float* out, int64_t stride) const {
    bool numbers = true;
    for (int i = 0; i < kTile; i += Lanes::kLanes) {
      Lanes a = Lanes::load(weights[0] + i), b = Lanes::load(weights[1] + i);
      Lanes c = Lanes::load(weights[2] + i), d = Lanes::load(weights[3] + i);
      transpose_fours(a, b, c, d);
      for (int j = 0; j < Lanes::kLanes; j += 4) {
        const Index whose = Lanes::advance(tap_, j);
        const auto weighted = [&](int k, Lanes w) __attribute__((always_inline)) {
          return Lanes{taps(i + j + k).v * w.permuted(whose).v};
        };
        const Lanes two = added(weighted(0, a), weighted(1, b), half_), other = added(weighted(2, c), weighted(3, d), half_);
        const Lanes sum = added(two, other, quarter_);
        numbers &= !sum.has_nan();
        sum.store_fours(channels_, out + i + j, stride);
      }
    }
    return numbers;
  }

 private:
  POLYPHASE_BLOCK static Lanes added(Lanes x, Lanes y, const Index (&places)[2]) {
    return {x.permuted(places[0], y).v + x.permuted(places[1], y).v};
  }

  int channels_;
  Index tap_;         // lane by lane: the tap it belongs to
  Index half_[2];     // of two pixels: the first two taps, and the others
  Index quarter_[2];  // of two such sums: the first taps, channel by channel, and the others
};

#endif

}  // namespace polyphase
