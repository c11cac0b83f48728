// 2 x 2 taps of a tile's pixels, four pixels at a time: NEON's registers.
//
// Sums return false where a value came out NaN.
#pragma once

#include "polyphase/simd/quad.h"
#include "polyphase/warp/pixels.h"

namespace polyphase {

#if defined(POLYPHASE_NEON)

// How many elements from the left tap of a row on are read: of a plane, and of pixels of bytes.
template <class S>
constexpr int64_t kReadOfPlane = 2;
constexpr int64_t kReadOfBytes = 8;
constexpr bool kPlanesArePrefetched = false;
constexpr int kPrefetchedPixel = 4;  // of floats, every so many

// Conversions are slow. In a float from 2^23 on, the last bit is 1: a byte is put into the last bits of 2^23, which is then
// subtracted.
constexpr float kFrom23 = 0x1p23f;
constexpr uint32_t kBits23 = __builtin_bit_cast(uint32_t, kFrom23);

// Pixels of so many bytes, all of whose channels are summed: eight bytes from the left tap on are both taps of a row.
template <int kChannels>
struct ByteSquares {
  // Channel c of the left taps or the right ones of four pixels.
  template <int c, bool kRight>
  POLYPHASE_BLOCK static Quad channel(neon::Bytes16 first_words, neon::Bytes16 second_words) {
    constexpr int kByte = c + (kRight ? kChannels : 0), kIn = kByte % 4;
    constexpr neon::Bytes16 kPlaces = {kIn,     255, 255, 16, kIn + 4,  255, 255, 16,
                                       kIn + 8, 255, 255, 16, kIn + 12, 255, 255, 16};
    constexpr neon::Bytes16 kLast = {kBits23 >> 24};  // the other bits are 0
    const auto picked = neon::pick(kByte < 4 ? first_words : second_words, kLast, kPlaces);
    return {reinterpret_cast<Quad::Register>(picked) - kFrom23};
  }

  // Both rows of four pixels' taps, in words of four bytes.
  struct Words {
    neon::Bytes16 above, above_rest, below, below_rest;
  };
  POLYPHASE_BLOCK static Words load(const uint8_t* image, const int32_t* first, int64_t y_stride) {
    const uint8_t *p = image + first[0], *q = image + first[1], *r = image + first[2], *s = image + first[3];
    const auto above_pq = neon::load_halves<neon::Bytes16>(p, q), above_rs = neon::load_halves<neon::Bytes16>(r, s);
    const auto below_pq = neon::load_halves<neon::Bytes16>(p + y_stride, q + y_stride);
    const auto below_rs = neon::load_halves<neon::Bytes16>(r + y_stride, s + y_stride);
    return {neon::even_lanes(above_pq, above_rs), neon::odd_lanes(above_pq, above_rs),
            neon::even_lanes(below_pq, below_rs), neon::odd_lanes(below_pq, below_rs)};
  }

  POLYPHASE_ROW_LOOP static void sum(const SquareTaps& taps, const uint8_t* image, int64_t y_stride, float* out,
                                     int64_t stride) {
    for (int i = 0; i < taps.count; i += 4) {
      const Words now = load(image, taps.first + i, y_stride);
      const Quad a = Quad::load(taps.weight[0] + i), b = Quad::load(taps.weight[1] + i);
      const Quad c = Quad::load(taps.weight[2] + i), d = Quad::load(taps.weight[3] + i);
      Quad left[kChannels], right[kChannels], sums[kChannels];
      const auto each = [](const auto& function) __attribute__((always_inline)) { repeat<kChannels>(function); };
      each([&](auto k) { left[k] = channel<k, false>(now.above, now.above_rest); });
      each([&](auto k) { right[k] = channel<k, true>(now.above, now.above_rest); });
      each([&](auto k) { sums[k].v = left[k].v * a.v; });
      each([&](auto k) { left[k] = channel<k, false>(now.below, now.below_rest); });
      each([&](auto k) { sums[k] = multiply_add(right[k], b, sums[k]); });
      each([&](auto k) { right[k] = channel<k, true>(now.below, now.below_rest); });
      each([&](auto k) { sums[k] = multiply_add(left[k], c, sums[k]); });
      each([&](auto k) { sums[k] = multiply_add(right[k], d, sums[k]); });
      each([&](auto k) { sums[k].store(out + k * stride + i); });
    }
  }
};

// Of the first few lanes.
inline bool are_numbers(Quad values, int count) {
  return neon::all((values.v == values.v) | (neon::Ints{0, 1, 2, 3} >= count));
}

// The taps of a pixel, each a vector of its channels.
struct Corners {
  Quad upper_left, upper_right, lower_left, lower_right;

  POLYPHASE_BLOCK Quad sum(Quad weights) const {
    const Quad::Register left = neon::multiply_lane<0>(upper_left.v, weights.v);
    const Quad::Register below = neon::multiply_lane<2>(lower_left.v, weights.v);
    return {neon::multiply_add_lane<1>(upper_right.v, weights.v, left) +
            neon::multiply_add_lane<3>(lower_right.v, weights.v, below)};
  }
};

template <int kChannels>
inline void sum_byte_squares(const SquareTaps& taps, const uint8_t* image, int64_t y_stride, float* out, int64_t stride) {
  ByteSquares<kChannels>::sum(taps, image, y_stride, out, stride);
}

// Pixels of two to four floats.
POLYPHASE_ROW_LOOP inline bool sum_pixel_squares(const SquareTaps& taps, const float* image, int64_t y_stride, int channels,
                                                 float* out, int64_t stride) {
  float* const rows[4] = {out, out + stride, out + 2 * stride, out + 3 * stride};
  const int64_t right = channels;
  Quad total = Quad::zero();  // NaN where a value is
  const auto load = [&](int i) __attribute__((always_inline)) {
    const float *above = image + taps.first[i], *below = above + y_stride;
    return Corners{Quad::load(above), Quad::load(above + right), Quad::load(below), Quad::load(below + right)};
  };
  for (int i = 0; i < taps.count; i += 4) {
    Quad a = Quad::load(taps.weight[0] + i), b = Quad::load(taps.weight[1] + i);
    Quad c = Quad::load(taps.weight[2] + i), d = Quad::load(taps.weight[3] + i);
    transpose(a, b, c, d);
    const Corners first = load(i), second = load(i + 1);
    const Quad p = first.sum(a), q = second.sum(b);
    const Corners third = load(i + 2), fourth = load(i + 3);
    const Quad r = third.sum(c), s = fourth.sum(d);
    total.v += (p.v + q.v) + (r.v + s.v);
    store_channels(p, q, r, s, i, channels, rows);
  }
  return are_numbers(total, channels);
}

// Four pixels of a plane, and the pixel to the right of each.
struct PlanePairs {
  Quad left, right;
};
POLYPHASE_BLOCK PlanePairs load_pairs(const float* p, const float* q, const float* r, const float* s) {
  const auto pq = neon::load_halves<Quad::Register>(p, q), rs = neon::load_halves<Quad::Register>(r, s);
  return {{neon::even_lanes(pq, rs)}, {neon::odd_lanes(pq, rs)}};
}
POLYPHASE_BLOCK PlanePairs load_pairs(const uint8_t* p, const uint8_t* q, const uint8_t* r, const uint8_t* s) {
  const auto word = [](const uint8_t* two) __attribute__((always_inline)) {
    uint16_t both;
    std::memcpy(&both, two, sizeof(both));
    return static_cast<int32_t>(both);
  };
  const neon::Ints words = {word(p), word(q), word(r), word(s)};
  return {{__builtin_convertvector(words & 0xff, Quad::Register)}, {__builtin_convertvector(words >> 8, Quad::Register)}};
}

// Planes of floats or bytes.
template <class S>
POLYPHASE_ROW_LOOP bool sum_plane_squares(const SquareTaps& taps, const S* image, int64_t y_stride, int64_t channel_stride,
                                          int64_t channels, float* out, int64_t stride) {
  Quad total = Quad::zero();
  for (int i = 0; i < taps.count; i += 4) {
    const int32_t* first = taps.first + i;
    const S *p = image + first[0], *q = image + first[1], *r = image + first[2], *s = image + first[3];
    const Quad a = Quad::load(taps.weight[0] + i), b = Quad::load(taps.weight[1] + i);
    const Quad c = Quad::load(taps.weight[2] + i), d = Quad::load(taps.weight[3] + i);
    float* to = out + i;
    for (int64_t channel = 0; channel < channels; ++channel, to += stride) {
      const PlanePairs above = load_pairs(p, q, r, s);
      const PlanePairs below = load_pairs(p + y_stride, q + y_stride, r + y_stride, s + y_stride);
      const Quad upper = multiply_add(above.right, b, {above.left.v * a.v});
      const Quad lower = multiply_add(below.right, d, {below.left.v * c.v});
      const Quad sum = {upper.v + lower.v};
      total.v += sum.v;
      sum.store(to);
      p += channel_stride, q += channel_stride, r += channel_stride, s += channel_stride;
    }
  }
  return sizeof(S) == 1 || are_numbers(total, 4);
}

#endif

}  // namespace polyphase
