// 2 x 2 taps of a tile's pixels, and nearest pixels, eight at a time, by plain loads of 16 bytes and registers of 32: for AVX2,
// and for AVX-512 too, as loads take the time, and there are as many of them whatever a vector's length. Floats of pixels need no
// sorting, and are in registers of 64 there.
//
// Sums return false where a value came out NaN.
#pragma once

#include "polyphase/core/unroll.h"
#include "polyphase/simd/quads.h"
#include "polyphase/warp/pixels.h"

namespace polyphase {

#if defined(__AVX2__)

constexpr bool kPlanesArePrefetched = true;
constexpr int kPrefetchedPixel = 2;  // of floats, every so many

// Where eight pixels begin.
struct EightPlaces {
  int64_t at[8];
  explicit EightPlaces(const int32_t* first)
      : at{first[0], first[1], first[2], first[3], first[4], first[5], first[6], first[7]} {}
};

// The weights of eight pixels' taps, row by row.
struct EightWeights {
  Quads a, b, c, d;
  EightWeights(const SquareTaps& taps, int i)
      : a(Quads::load(taps.weight[0] + i)),
        b(Quads::load(taps.weight[1] + i)),
        c(Quads::load(taps.weight[2] + i)),
        d(Quads::load(taps.weight[3] + i)) {}

  POLYPHASE_BLOCK Quads sum(Quads left, Quads right, Quads lower_left, Quads lower_right) const {
    const Quads upper = multiply_add(right, b, {left.v * a.v}), lower = multiply_add(lower_right, d, {lower_left.v * c.v});
    return {upper.v + lower.v};
  }
};

// Pixels of two to four floats, eight at a time or sixteen.
POLYPHASE_ROW_LOOP inline bool sum_pixel_squares(const SquareTaps& taps, const float* image, int64_t y_stride, int channels,
                                                 float* out, int64_t stride) {
  using Quads = WidestQuads;
  float* const rows[4] = {out, out + stride, out + 2 * stride, out + 3 * stride};
  const float *const right = image + channels, *const below = image + y_stride, *const below_right = below + channels;
  Quads total = Quads::zero();  // NaN where a value is
  for (int i = 0; i < taps.count; i += Quads::kPixels) {
    const Quads a = Quads::load(taps.weight[0] + i), b = Quads::load(taps.weight[1] + i);
    const Quads c = Quads::load(taps.weight[2] + i), d = Quads::load(taps.weight[3] + i);
    const auto pixel = [&](auto j) __attribute__((always_inline)) {
      const int32_t* const first = taps.first + i + j;
      Quads upper = {Quads::load_pixels(image, first).v * a.template all<j>().v};
      Quads lower = {Quads::load_pixels(below, first).v * c.template all<j>().v};
      upper = multiply_add(Quads::load_pixels(right, first), b.template all<j>(), upper);
      lower = multiply_add(Quads::load_pixels(below_right, first), d.template all<j>(), lower);
      return Quads{upper.v + lower.v};
    };
    Quads p = pixel(Constant<0>()), q = pixel(Constant<1>()), r = pixel(Constant<2>()), s = pixel(Constant<3>());
    transpose(p, q, r, s);
    total.v += p.v + q.v;
    p.store(rows[0] + i);
    q.store(rows[1] + i);
    if (channels > 2) r.store(rows[2] + i), total.v += r.v;
    if (channels > 3) s.store(rows[3] + i), total.v += s.v;
  }
  return !total.has_nan();
}

#if !defined(__AVX512VBMI__)

// How many elements from the left tap of a row on are read: of a plane, and of pixels of bytes.
template <class S>
constexpr int64_t kReadOfPlane = 16 / sizeof(S);
constexpr int64_t kReadOfBytes = 16;

// Byte kByte of each lane as a float.
template <int kByte>
POLYPHASE_BLOCK Quads byte_of(Quads words) {
  const __m256i all = _mm256_castps_si256(words.v);
  if constexpr (kByte == 0) {
    return {_mm256_cvtepi32_ps(_mm256_and_si256(all, _mm256_set1_epi32(0xff)))};
  } else if constexpr (kByte == 3) {
    return {_mm256_cvtepi32_ps(_mm256_srli_epi32(all, 24))};
  } else {
    const __m128i places =
        _mm_setr_epi8(kByte, -1, -1, -1, kByte + 4, -1, -1, -1, kByte + 8, -1, -1, -1, kByte + 12, -1, -1, -1);
    return {_mm256_cvtepi32_ps(_mm256_shuffle_epi8(all, _mm256_broadcastsi128_si256(places)))};
  }
}

// Two taps of a row of eight pixels of a plane.
struct PlanePairs {
  Quads left, right;
  POLYPHASE_BLOCK static PlanePairs load(const float* plane, const EightPlaces& places) {
    const EightQuads quads = EightQuads::load_transposed(plane, places.at);
    return {quads.p, quads.q};
  }
  POLYPHASE_BLOCK static PlanePairs load(const uint8_t* plane, const EightPlaces& places) {
    const EightQuads quads = EightQuads::load_transposed(plane, places.at);
    return {byte_of<0>(quads.p), byte_of<1>(quads.p)};
  }
};

// Planes of floats or bytes.
template <class S>
POLYPHASE_ROW_LOOP bool sum_plane_squares(const SquareTaps& taps, const S* image, int64_t y_stride, int64_t channel_stride,
                                          int64_t channels, float* out, int64_t stride) {
  Quads total = Quads::zero();
  for (int i = 0; i < taps.count; i += 8) {
    const EightPlaces places(taps.first + i);
    const EightWeights weights(taps, i);
    const S* above = image;
    float* to = out + i;
    for (int64_t c = 0; c < channels; ++c, above += channel_stride, to += stride) {
      const PlanePairs upper = PlanePairs::load(above, places);
      const S* below = above + y_stride;
      asm("" : "+r"(below));  // GCC would add the stride to each of the offsets, and run out of registers
      const PlanePairs lower = PlanePairs::load(below, places);
      const Quads sum = weights.sum(upper.left, upper.right, lower.left, lower.right);
      total.v += sum.v;
      sum.store(to);
    }
  }
  return sizeof(S) == 1 || !total.has_nan();
}

// Pixels of kChannels bytes, at most four: eight bytes from the left tap on are both taps of a row.
template <int kChannels>
POLYPHASE_ROW_LOOP void sum_byte_squares(const SquareTaps& taps, const uint8_t* image, int64_t y_stride, float* out,
                                         int64_t stride) {
  const uint8_t* const below = image + y_stride;
  for (int i = 0; i < taps.count; i += 8) {
    const EightPlaces places(taps.first + i);
    const EightWeights weights(taps, i);
    const EightQuads upper = EightQuads::load_transposed(image, places.at);
    const EightQuads lower = EightQuads::load_transposed(below, places.at);
    repeat<kChannels>([&](auto k) __attribute__((always_inline)) {
      constexpr int kRight = k + kChannels;
      const auto right = [](const EightQuads& row) { return byte_of<kRight % 4>(kRight < 4 ? row.p : row.q); };
      weights.sum(byte_of<k>(upper.p), right(upper), byte_of<k>(lower.p), right(lower)).store(out + k * stride + i);
    });
  }
}

inline void store_where(Quads mask, Quads values, float* out) { Quads{_mm256_and_ps(values.v, mask.v)}.store(out); }

POLYPHASE_ROW_LOOP inline void pick_planes(const NearestTaps& taps, const float* image, int64_t channel_stride,
                                           int64_t channels, float* out, int64_t stride) {
  for (int i = 0; i < taps.count; i += 8) {
    const EightPlaces places(taps.first + i);
    const Quads inside = Quads::load(reinterpret_cast<const float*>(taps.inside + i));
    const float* plane = image;
    float* to = out + i;
    for (int64_t c = 0; c < channels; ++c, plane += channel_stride, to += stride) {
      store_where(inside, load_eight(plane, places.at), to);
    }
  }
}

// Pixels whose channels lie one after the other, four channels at a time.
POLYPHASE_ROW_LOOP inline void pick_pixels(const NearestTaps& taps, const float* image, int64_t channels, float* out,
                                           int64_t stride) {
  for (int i = 0; i < taps.count; i += 8) {
    const EightPlaces places(taps.first + i);
    const Quads inside = Quads::load(reinterpret_cast<const float*>(taps.inside + i));
    float* to = out + i;
    for (int64_t c = 0; c < channels; c += 4, to += 4 * stride) {
      const EightQuads all = EightQuads::load_transposed(image + c, places.at);
      store_where(inside, all.p, to);
      if (c + 1 < channels) store_where(inside, all.q, to + stride);
      if (c + 2 < channels) store_where(inside, all.r, to + 2 * stride);
      if (c + 3 < channels) store_where(inside, all.s, to + 3 * stride);
    }
  }
}

#endif

#endif

}  // namespace polyphase
