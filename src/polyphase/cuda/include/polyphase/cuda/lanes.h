// A warp: 32 lanes that do the same at the same time, and multiply matrices of bytes together. On the host a warp is a loop
// over its lanes, and a product is made from what all of them hold.
#pragma once

#include "polyphase/cuda/block.h"
#include "polyphase/cuda/weight_matrices.h"

namespace polyphase {

constexpr int kLanes = 32;

// What every lane keeps for itself.
template <class State>
using Lanes = States<State, kLanes>;

// function(lane)
template <class Function>
inline void each_lane(const Function& function) {
#ifdef __CUDACC__
  function(static_cast<int>(threadIdx.x) % kLanes);
#else
  for (int lane = 0; lane < kLanes; ++lane) function(lane);
#endif
}

// function(warp), for all warps of a block, with a barrier behind.
template <class Function>
inline void each_warp(const Block& block, const Function& function) {
#ifdef __CUDACC__
  function(static_cast<int>(threadIdx.x) / kLanes);
  __syncthreads();
#else
  const int warps = block.threads() / kLanes;
  for (int i = 0; i < warps; ++i) function(block.backwards_ ? warps - 1 - i : i);
#endif
}

struct alignas(16) Four {
  uint32_t items[4];
};

// A lane's share of a matrix of weights, 16 rows by 32 columns: 256 * high + low.
struct Weights {
  Four high, low;

  static Weights at(const uint8_t* matrix, int lane) {
    const Four* const fours = reinterpret_cast<const Four*>(matrix) + lane;
    return {fours[0], fours[WeightMatrix::kLow / sizeof(Four)]};
  }
};

// And of sums, 16 rows by 8 columns: lane 4 * g + t has of row g columns 2 * t and 2 * t + 1, then the same of row g + 8.
struct Sums {
  int32_t high[4], low[4];

  uint32_t operator[](int i) const { return static_cast<uint32_t>(high[i]) * 256u + static_cast<uint32_t>(low[i]); }
};

// Bytes, 32 rows by 8 columns, are two words of each lane: lane 4 * g + t has column g, of the first rows 4 * t to 4 * t + 3,
// and the same of rows 16 on.

#ifdef __CUDACC__

// by + weights * bytes
inline void multiply(int32_t (&sums)[4], const uint32_t (&weights)[4], uint32_t first, uint32_t second, int32_t a, int32_t b,
                     int32_t c, int32_t d) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
      : "=r"(sums[0]), "=r"(sums[1]), "=r"(sums[2]), "=r"(sums[3])
      : "r"(weights[0]), "r"(weights[1]), "r"(weights[2]), "r"(weights[3]), "r"(first), "r"(second), "r"(a), "r"(b), "r"(c),
        "r"(d));
#else  // which has products of 8 rows by 16 columns
  sums[0] = a, sums[1] = b, sums[2] = c, sums[3] = d;
  for (int i = 0; i < 4; ++i) {
    int32_t* const of = sums + i % 2 * 2;
    asm("mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+r"(of[0]), "+r"(of[1])
        : "r"(weights[i]), "r"(i < 2 ? first : second));
  }
#endif
}

// weights * bytes, onto `start`, which is a lane's four sums, or onto what is there. kFirst: which of both.
template <bool kFirst>
inline void multiply(Lanes<Sums>& sums, Lanes<Weights>& weights, Lanes<uint32_t> (&bytes)[2], const Four& start) {
  Sums& s = sums.of(0);
  const Weights& by = weights.of(0);
  const uint32_t first = bytes[0].of(0), second = bytes[1].of(0);
  if constexpr (kFirst) {
    const int32_t nothing = 0;
    multiply(s.high, by.high.items, first, second, nothing, nothing, nothing, nothing);
    multiply(s.low, by.low.items, first, second, static_cast<int32_t>(start.items[0]), static_cast<int32_t>(start.items[1]),
             static_cast<int32_t>(start.items[2]), static_cast<int32_t>(start.items[3]));
  } else {
    multiply(s.high, by.high.items, first, second, s.high[0], s.high[1], s.high[2], s.high[3]);
    multiply(s.low, by.low.items, first, second, s.low[0], s.low[1], s.low[2], s.low[3]);
  }
}

#else

template <bool kFirst>
inline void multiply(Lanes<Sums>& sums, Lanes<Weights>& weights, Lanes<uint32_t> (&bytes)[2], const Four& start) {
  for (int lane = 0; lane < kLanes; ++lane) {
    Sums& s = sums.of(lane);
    for (int item = 0; item < 4; ++item) {
      if (kFirst) s.high[item] = 0, s.low[item] = static_cast<int32_t>(start.items[item]);
      const int row = lane / 4, column = lane % 4 * 2 + item % 2;
      for (int i = 0; i < 2; ++i) {
        for (int t = 0; t < 4; ++t) {
          const Weights& by = weights.of(row * 4 + t);
          const uint32_t word = bytes[i].of(column * 4 + t);
          for (int bit = 0; bit < 32; bit += 8) {
            const auto byte = static_cast<int32_t>(word >> bit & 255);
            s.high[item] += static_cast<int32_t>(by.high.items[2 * i + item / 2] >> bit & 255) * byte;
            s.low[item] += static_cast<int32_t>(by.low.items[2 * i + item / 2] >> bit & 255) * byte;
          }
        }
      }
    }
  }
}

#endif

}  // namespace polyphase
