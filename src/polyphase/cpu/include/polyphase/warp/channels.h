// Images whose channels lie in planes, turned round so that those of a pixel lie side by side, and back: a pixel of many
// channels is then read by a few vectors, where planes are gathered from, value by value.
#pragma once

#include "polyphase/core/abi.h"
#include "polyphase/core/standard.h"
#include "polyphase/simd/quad.h"
#include "polyphase/simd/quads.h"
#include "polyphase/simd/vector.h"
#include "polyphase/warp/abi.h"

namespace polyphase {

// Element (row, column) of `from` to (column, row) of `to`.
template <class T>
POLYPHASE_BLOCK void turn_few(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) to[c * to_stride + r] = from[r * from_stride + c];
  }
}

// How many rows of four columns are turned at once: as many as a register has floats.
#if defined(__AVX2__)
constexpr int64_t kTurnedRows = WidestQuads::kPixels;

POLYPHASE_BLOCK void turn_block(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  const auto load = [&](int64_t row) __attribute__((always_inline)) {
    const float *p = from + row * from_stride, *q = p + 4 * from_stride;
#if defined(__AVX512F__)
    const float *r = p + 8 * from_stride, *s = p + 12 * from_stride;
    __m512 all = _mm512_insertf32x4(_mm512_castps128_ps512(_mm_loadu_ps(p)), _mm_loadu_ps(q), 1);
    all = _mm512_insertf32x4(all, _mm_loadu_ps(r), 2);
    return WideQuads{_mm512_insertf32x4(all, _mm_loadu_ps(s), 3)};
#else
    return Quads::load(p, q);
#endif
  };
  WidestQuads p = load(0), q = load(1), r = load(2), s = load(3);
  transpose(p, q, r, s);
  p.store(to);
  q.store(to + to_stride);
  r.store(to + 2 * to_stride);
  s.store(to + 3 * to_stride);
}
#else
constexpr int64_t kTurnedRows = 4;

POLYPHASE_BLOCK void turn_block(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  Quad p = Quad::load(from), q = Quad::load(from + from_stride), r = Quad::load(from + 2 * from_stride),
       s = Quad::load(from + 3 * from_stride);
  transpose(p, q, r, s);
  p.store(to);
  q.store(to + to_stride);
  r.store(to + 2 * to_stride);
  s.store(to + 3 * to_stride);
}
#endif

// Of any size, by blocks of columns that are as long as a cache line of floats.
template <class T>
POLYPHASE_ROW_LOOP void turn(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t rows, int64_t columns) {
  constexpr int64_t kWide = 16;
  constexpr bool kBlocks = __is_same(T, float);
  const int64_t high = kBlocks ? rows / kTurnedRows * kTurnedRows : 0;
  for (int64_t column = 0; column < columns; column += kWide) {
    const int64_t wide = min(kWide, columns - column), fours = kBlocks ? wide / 4 * 4 : 0;
    const T* block = from + column;
    T* turned = to + column * to_stride;
    if constexpr (kBlocks) {
      for (int64_t row = 0; row < high; row += kTurnedRows) {
        for (int64_t c = 0; c < fours; c += 4) {
          turn_block(block + row * from_stride + c, from_stride, turned + c * to_stride + row, to_stride);
        }
      }
    }
    turn_few(block + fours, from_stride, turned + fours * to_stride, to_stride, high, wide - fours);
    turn_few(block + high * from_stride, from_stride, turned + high, to_stride, rows - high, wide);
  }
}

// Of so many channels, several vectors of AVX2 and one of AVX-512, a pixel is worth being turned.
constexpr int64_t kFewestTurned = 16;
// An image of at most so many times as many pixels as are sampled.
constexpr int64_t kMostTurned = 4;

inline int64_t pixels_of(const WarpCall& call) { return call.in_size[0] * call.in_size[1] * call.in_size[2]; }

// The strides of such an image when it is turned; its batch is one.
inline ImageStrides turned_strides(const WarpCall& call, int64_t channels) {
  return {0, 1, call.in_size[1] * call.in_size[2] * channels, call.in_size[2] * channels, channels};
}

// Whether an image is to be turned: its channels lie in planes, and all is few enough to be counted in 32 bits.
inline bool is_worth_turning(const WarpCall& call) {
  const int64_t pixels = pixels_of(call), points = call.out_size[0] * call.out_size[1] * call.out_size[2];
  return call.channels >= kFewestTurned && call.image_strides.channel != 1 && call.image_strides.x == 1 &&
         pixels <= kMostTurned * points && pixels * call.channels < (int64_t{1} << 31);
}

// Channels `begin` to `end` of an image that lies in planes, to where they lie side by side; rows `first` to `last`, counted
// over (z, y).
template <class T>
void turn_image(const T* image, const WarpCall& call, int64_t begin, int64_t end, int64_t first, int64_t last, T* to) {
  const int64_t width = call.in_size[2], channels = end - begin;
  const ImageStrides& s = call.image_strides;
  const T* from = image + begin * s.channel;
  const bool whole = s.y == width && (call.in_size[0] == 1 || s.z == width * call.in_size[1]);
  if (whole) return turn(from + first * width, s.channel, to + first * width * channels, channels, channels, (last - first) * width);
  for (int64_t r = first; r < last; ++r) {
    const T* row = from + r / call.in_size[1] * s.z + r % call.in_size[1] * s.y;
    turn(row, s.channel, to + r * width * channels, channels, channels, width);
  }
}

}  // namespace polyphase
