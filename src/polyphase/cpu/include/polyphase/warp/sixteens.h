// 2 x 2 taps of a tile's pixels, sixteen pixels at a time, by gathers: processors with VBMI have quick ones.
//
// Sums return false where a value came out NaN.
#pragma once

#include "polyphase/core/unroll.h"
#include "polyphase/warp/windows.h"

namespace polyphase {

#if defined(__AVX512VBMI__)

// How many elements from the left tap of a row on are read: of a plane, and of pixels of bytes.
template <class S>
constexpr int64_t kReadOfPlane = sizeof(S) == 1 ? 4 : 2;
constexpr int64_t kReadOfBytes = 8;

// Two taps of a row of a plane.
POLYPHASE_BLOCK Vec<float>::Pair gather_taps(const float* plane, Vec<float>::Index first) {
  return Vec<float>::gather_pairs(plane, first);
}
POLYPHASE_BLOCK Vec<float>::Pair gather_taps(const uint8_t* plane, Vec<float>::Index first) {
  const auto bytes = Vec<float>::gather_bytes(plane, first);
  return {byte_of_lanes<0>(bytes), byte_of_lanes<1>(bytes)};
}

template <class S>
POLYPHASE_ROW_LOOP bool sum_plane_squares(const SquareTaps& taps, const S* image, int64_t y_stride, int64_t channel_stride,
                                          int64_t channels, float* out, int64_t stride) {
  using Lanes = Vec<float>;
  Lanes total = Lanes::zero();
  for (int i = 0; i < taps.count; i += Lanes::kLanes) {
    const SixteenWeights weights(taps, i);
    const Lanes::Index first = Lanes::load_index(taps.first + i);
    const S* plane = image;
    float* to = out + i;
    for (int64_t c = 0; c < channels; ++c, plane += channel_stride, to += stride) {
      const Lanes::Pair upper = gather_taps(plane, first), lower = gather_taps(plane + y_stride, first);
      const Lanes sum = weights.sum(upper.first, upper.second, lower.first, lower.second);
      total = total.plus(sum);
      sum.store(to);
    }
  }
  return sizeof(S) == 1 || !total.has_nan();
}

template <int kChannels>
POLYPHASE_ROW_LOOP void sum_byte_squares(const SquareTaps& taps, const uint8_t* image, int64_t y_stride, float* out,
                                         int64_t stride) {
  using Lanes = Vec<float>;
  const uint8_t *const right = image + kChannels, *const below = image + y_stride, *const below_right = below + kChannels;
  for (int i = 0; i < taps.count; i += Lanes::kLanes) {
    const SixteenWeights weights(taps, i);
    const Lanes::Index first = Lanes::load_index(taps.first + i);
    const Lanes::Index a = Lanes::gather_bytes(image, first), b = Lanes::gather_bytes(right, first);
    const Lanes::Index c = Lanes::gather_bytes(below, first), d = Lanes::gather_bytes(below_right, first);
    repeat<kChannels>([&](auto k) __attribute__((always_inline)) {
      const Lanes sum = weights.sum(byte_of_lanes<k>(a), byte_of_lanes<k>(b), byte_of_lanes<k>(c), byte_of_lanes<k>(d));
      sum.store(out + k * stride + i);
    });
  }
}

#endif

}  // namespace polyphase
