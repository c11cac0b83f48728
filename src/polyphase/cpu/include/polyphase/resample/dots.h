// What the dot products of byte_dots.h share, whatever the instruction set.
#pragma once

#include <cstdint>
#include <cstring>

#include "polyphase/core/abi.h"
#include "polyphase/core/standard.h"

namespace polyphase {

// shuffle: where the 16 bit values of a chunk come from. interleave: where the bytes of finished pixels come from.
struct DotTables {
  uint8_t shuffle[32];
  uint8_t interleave[16];
};

// Sums four outputs of several channels at the same time: each has `chunks` chunks, the first at its place in `starts`.
// `step`: bytes from a chunk's pixels to the next one's. add_chunk(sum, pixels, weights) returns a sum with one chunk more.
template <int kChunkWeights, class Register, class AddChunk>
POLYPHASE_BLOCK void sum_four(const uint8_t* in, const int32_t* starts, int64_t step, const uint8_t* weights, int chunks,
                              const AddChunk& add_chunk, Register& p, Register& q, Register& r, Register& s) {
  const int64_t stride = static_cast<int64_t>(chunks) * kChunkWeights;
  const uint8_t *at_p = in + starts[0], *at_q = in + starts[1], *at_r = in + starts[2], *at_s = in + starts[3];
#pragma GCC unroll 5
  for (int g = 0; g < chunks; ++g) {
    const uint8_t* const chunk = weights + g * kChunkWeights;
    p = add_chunk(p, at_p + g * step, chunk);
    q = add_chunk(q, at_q + g * step, chunk + stride);
    r = add_chunk(r, at_r + g * step, chunk + 2 * stride);
    s = add_chunk(s, at_s + g * step, chunk + 3 * stride);
  }
}

}  // namespace polyphase
