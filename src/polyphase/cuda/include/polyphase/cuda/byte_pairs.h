// Bytes four to a word, and their products with pairs of 16 bit weights.
#pragma once

#include "polyphase/cuda/rows.h"
#include "polyphase/cuda/sums.h"
#include "polyphase/cuda/vectors.h"

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

// Four bytes of two words, low then high, of numbers 0 to 7.
template <int kA, int kB, int kC, int kD>
inline uint32_t four_of(uint32_t low, uint32_t high) {
#ifdef __CUDACC__
  return __byte_perm(low, high, kA | kB << 4 | kC << 8 | kD << 12);
#else
  const uint64_t both = uint64_t(high) << 32 | low;
  const auto byte = [&](int i) { return static_cast<uint32_t>(both >> (8 * i) & 255); };
  return byte(kA) | byte(kB) << 8 | byte(kC) << 16 | byte(kD) << 24;
#endif
}

// Four pixels, into the bytes of each channel.
inline void apart(const uint32_t* pixels, uint32_t (&four)[1]) { four[0] = pixels[0]; }
inline void apart(const uint32_t* pixels, uint32_t (&four)[2]) {
  four[0] = four_of<0, 2, 4, 6>(pixels[0], pixels[1]);
  four[1] = four_of<1, 3, 5, 7>(pixels[0], pixels[1]);
}
inline void apart(const uint32_t* pixels, uint32_t (&four)[3]) {
  four[0] = four_of<0, 1, 2, 5>(four_of<0, 3, 6, 6>(pixels[0], pixels[1]), pixels[2]);
  four[1] = four_of<0, 1, 2, 6>(four_of<1, 4, 7, 7>(pixels[0], pixels[1]), pixels[2]);
  four[2] = four_of<0, 1, 4, 7>(four_of<2, 5, 5, 5>(pixels[0], pixels[1]), pixels[2]);
}
inline void apart(const uint32_t* pixels, uint32_t (&four)[4]) {
  const uint32_t low[] = {four_of<0, 4, 1, 5>(pixels[0], pixels[1]), four_of<0, 4, 1, 5>(pixels[2], pixels[3])};
  const uint32_t high[] = {four_of<2, 6, 3, 7>(pixels[0], pixels[1]), four_of<2, 6, 3, 7>(pixels[2], pixels[3])};
  four[0] = four_of<0, 1, 4, 5>(low[0], low[1]);
  four[1] = four_of<2, 3, 6, 7>(low[0], low[1]);
  four[2] = four_of<0, 1, 4, 5>(high[0], high[1]);
  four[3] = four_of<2, 3, 6, 7>(high[0], high[1]);
}

inline uint32_t pair_of(int32_t low, int32_t high) {
  return (static_cast<uint32_t>(low) & 0xffff) | static_cast<uint32_t>(high) << 16;
}

// The latest kY values of a column as bytes, the last one uppermost, and output rows that are summed over them.
template <int kY>
struct ByteColumn {
  static constexpr int kWords = (kY + 3) / 4;
  static constexpr int kLead = 4 * kWords - kY;  // bytes before the first of the latest kY
  using Row = OutputRow<uint32_t, 2 * kWords>;

  uint32_t words[kWords];

  void push(int32_t value) {
#pragma unroll
    for (int w = 0; w + 1 < kWords; ++w) words[w] = from_byte(words[w], words[w + 1], 8);
    words[kWords - 1] = from_byte(words[kWords - 1], static_cast<uint32_t>(value), 8);
  }

  // Onto what it begins with.
  int32_t sum(const Row& row, int32_t sum) const {
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      sum = add_pair<false>(sum, row.words[2 * w], words[w]);
      sum = add_pair<true>(sum, row.words[2 * w + 1], words[w]);
    }
    return sum;
  }

  static void weigh(Row& row, const int32_t* weight) {
    for (int pair = 0; pair < 2 * kWords; ++pair) {
      const int low = 2 * pair - kLead, high = low + 1;
      row.words[pair] = pair_of(low < 0 ? 0 : weight[low], high < 0 ? 0 : weight[high]);
    }
  }
};

// What is stored for a sum over a column. of_row: the border of the output's row.
template <class Store, bool kBordered>
inline typename Store::To byte_output(const MapsCall& call, const Place& place, Column at, int32_t of_row, int32_t sum) {
  int32_t border = 0;
  if (kBordered) border = greater(greater(place.border, of_row), border_at(call.x, at.x));
  return finished<Store, kBordered>(call, place, at.x, at.c, border, ByteSum::stored(sum));
}

// What is stored for every value of a byte, in shared memory, where that is more than the byte: outputs are looked up, and
// their arithmetic is done once for a block. Of the channels of a pixel, or of a plane's one.
template <class Store, int kChannels>
struct ByteOutputs {
  using To = typename Store::To;
  static constexpr bool kLookedUp = kTensors == 0 && sizeof(To) > 1;  // as device_cuts.h has it
  static constexpr int kValues = 256;
  static constexpr int kSize = kLookedUp ? kChannels * kValues : 0;

  template <int kThreads>
  static void fill(const MapsCall& call, const Place& plane, To* outputs, int thread) {
    static_assert(kSize % kThreads == 0, "as many for every thread");
#pragma unroll
    for (int i = 0; i < kSize; i += kThreads) {
      const int at = i + thread;
      outputs[at] = byte_output<Store, false>(call, plane, {0, at / kValues}, 0, at % kValues);
    }
  }

  template <bool kBordered>
  static To at(const To* outputs, const MapsCall& call, const Place& place, Column at, int32_t of_row, int32_t sum) {
    if constexpr (kLookedUp && !kBordered) return outputs[at.c * kValues + sum];
    return byte_output<Store, kBordered>(call, place, at, of_row, sum);
  }
};

}  // namespace polyphase
