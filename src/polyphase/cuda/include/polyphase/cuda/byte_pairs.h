// Bytes staged in shared memory, and their products with pairs of 16 bit weights.
//
// Windows that are read so begin at multiples of 4 pixels, as `tables.in_fours` makes them, and may reach over the end of
// a row, with weights of 0.
#pragma once

#include "polyphase/cuda/places.h"

namespace polyphase {

// sum + the products of two 16 bit weights with two bytes of a word: the lower two, or the upper.
template <bool kUpper>
inline int32_t add_pair(int32_t sum, uint32_t weights, uint32_t bytes) {
#ifdef __CUDACC__
  int32_t result;
  if constexpr (kUpper) {
    asm("dp2a.hi.s32.u32 %0, %1, %2, %3;" : "=r"(result) : "r"(weights), "r"(bytes), "r"(sum));
  } else {
    asm("dp2a.lo.s32.u32 %0, %1, %2, %3;" : "=r"(result) : "r"(weights), "r"(bytes), "r"(sum));
  }
  return result;
#else
  const uint32_t pair = kUpper ? bytes >> 16 : bytes;
  const auto low = static_cast<int16_t>(weights & 0xffff), high = static_cast<int16_t>(weights >> 16);
  return sum + low * static_cast<int32_t>(pair & 255) + high * static_cast<int32_t>(pair >> 8 & 255);
#endif
}

// Rows of the source as planes of bytes: [row][channel][call.span]. kChannels: of a pixel, 0 where only the call knows.
// kByWords: rows begin at multiples of 4 bytes, and pixels lie side by side.
template <class Load, int kTensors, int kChannels, bool kByWords, int kThreads>
struct StagedRows {
  using From = typename Load::From;
  static constexpr int kRead = kChannels > 0 ? kChannels : 1;
  static constexpr int kAtOnce = 4;

  static int channels(const MapsCall& call) { return kChannels > 0 ? kChannels : static_cast<int>(call.channels); }

  // Rows [row, row + count), kRows at most, from pixel `origin` on; what lies behind a row's end is 0.
  template <int kRows>
  static void stage(const MapsCall& call, const Place<kTensors>& plane, uint8_t* staged, int row, int count, int origin,
                    int thread) {
    const int quads = static_cast<int>(call.span / 4);
    const From* source = static_cast<const From*>(call.source) + plane.source + row * call.y.in_stride;
    for (int quad = thread; quad < quads; quad += kThreads) {
      const int x = origin + quad * 4;
      uint8_t* target = staged + quad * 4;
      if (kByWords && kChannels > 0 && call.x.in_size - x >= 4) {
        uint32_t words[kRows][kRead];
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
#pragma unroll
          for (int w = 0; w < kRead; ++w) {
            const From* from = source + (r < count ? r : count - 1) * call.y.in_stride + int64_t(x) * kChannels;
            words[r][w] = reinterpret_cast<const uint32_t*>(from)[w];
          }
        }
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          spread(call, plane, words[r], target + r * kRead * call.span);
        }
      } else {
#pragma unroll 1
        for (int r = 0; r < count; ++r) {
          one_by_one(call, plane, source + r * call.y.in_stride, x, target + r * channels(call) * call.span);
        }
      }
    }
  }

 private:
  // Four pixels: of every channel a word.
  static void spread(const MapsCall& call, const Place<kTensors>& plane, const uint32_t (&words)[kRead],
                     uint8_t* staged) {
#pragma unroll
    for (int c = 0; c < kRead; ++c) {
      const int64_t channel = channel_of(call, plane.channel, c);
      uint32_t word = 0;
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        const int byte = p * kRead + c;
        const auto value = static_cast<From>(words[byte / 4] >> (8 * (byte % 4)));
        word |= uint32_t(Load::apply(value, call, channel)) << (8 * p);
      }
      *reinterpret_cast<uint32_t*>(staged + c * call.span) = word;
    }
  }

  static void one_by_one(const MapsCall& call, const Place<kTensors>& plane, const From* row, int x, uint8_t* staged) {
    for (int c = 0; c < channels(call); ++c) {
      const int64_t channel = channel_of(call, plane.channel, c);
      uint32_t word = 0;
      for (int p = 0; p < 4 && x + p < call.x.in_size; ++p) {
        const From value = row[(x + p) * call.x.in_stride + c * call.in_channel_stride];
        word |= uint32_t(Load::apply(value, call, channel)) << (8 * p);
      }
      *reinterpret_cast<uint32_t*>(staged + c * call.span) = word;
    }
  }
};

}  // namespace polyphase
