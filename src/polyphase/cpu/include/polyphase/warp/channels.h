// Images whose channels lie in planes, turned round so that those of a pixel lie side by side, and back: a pixel of many
// channels is then read by a few vectors, where planes are gathered from, value by value.
#pragma once

#include "polyphase/core/abi.h"
#include "polyphase/core/buffer.h"
#include "polyphase/core/standard.h"
#include "polyphase/core/unroll.h"
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

// What is turned at once, of so many rows and four columns; nothing, where kRows is 0.
template <class T>
struct TurnedBlock {
  static constexpr int64_t kRows = 0;
  static void turn(const T*, int64_t, T*, int64_t) {}
};

#if defined(__AVX2__)

template <>
struct TurnedBlock<float> {
  static constexpr int64_t kRows = WidestQuads::kPixels;

  POLYPHASE_BLOCK static void turn(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
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
};

template <>
struct TurnedBlock<double> {
  static constexpr int64_t kRows = 4;

  POLYPHASE_BLOCK static void turn(const double* from, int64_t from_stride, double* to, int64_t to_stride) {
    const __m256d p = _mm256_loadu_pd(from), q = _mm256_loadu_pd(from + from_stride);
    const __m256d r = _mm256_loadu_pd(from + 2 * from_stride), s = _mm256_loadu_pd(from + 3 * from_stride);
    const __m256d a = _mm256_unpacklo_pd(p, q), b = _mm256_unpackhi_pd(p, q);
    const __m256d c = _mm256_unpacklo_pd(r, s), d = _mm256_unpackhi_pd(r, s);
    _mm256_storeu_pd(to, _mm256_permute2f128_pd(a, c, 0x20));
    _mm256_storeu_pd(to + to_stride, _mm256_permute2f128_pd(b, d, 0x20));
    _mm256_storeu_pd(to + 2 * to_stride, _mm256_permute2f128_pd(a, c, 0x31));
    _mm256_storeu_pd(to + 3 * to_stride, _mm256_permute2f128_pd(b, d, 0x31));
  }
};

#else

template <>
struct TurnedBlock<float> {
  static constexpr int64_t kRows = 4;

  POLYPHASE_BLOCK static void turn(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
    Quad p = Quad::load(from), q = Quad::load(from + from_stride), r = Quad::load(from + 2 * from_stride),
         s = Quad::load(from + 3 * from_stride);
    transpose(p, q, r, s);
    p.store(to);
    q.store(to + to_stride);
    r.store(to + 2 * to_stride);
    s.store(to + 3 * to_stride);
  }
};

#endif

// Of any size, by blocks of columns that are as long as a cache line of floats.
template <class T>
POLYPHASE_ROW_LOOP void turn(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t rows, int64_t columns) {
  using Block = TurnedBlock<T>;
  constexpr int64_t kWide = 16, kRows = Block::kRows > 0 ? Block::kRows : 1;
  const int64_t high = Block::kRows > 0 ? rows / kRows * kRows : 0;
  for (int64_t column = 0; column < columns; column += kWide) {
    const int64_t wide = min(kWide, columns - column), fours = wide / 4 * 4;
    const T* block = from + column;
    T* turned = to + column * to_stride;
    for (int64_t row = 0; row < high; row += kRows) {
      for (int64_t c = 0; c < fours; c += 4) {
        Block::turn(block + row * from_stride + c, from_stride, turned + c * to_stride + row, to_stride);
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

// Whether so many channels of an image's gradient, which lies in dense planes, are to be added to where they lie side by side,
// and then turned back.
inline bool is_worth_adding_turned(const WarpCall& call, int64_t channels) {
  const ImageStrides& s = call.image_gradient_strides;
  const int64_t pixels = pixels_of(call), points = call.out_size[0] * call.out_size[1] * call.out_size[2];
  const int64_t *size = call.in_size, width = size[2];
  const bool dense = s.x == 1 && (size[1] == 1 || s.y == width) && (size[0] == 1 || s.z == width * size[1]);
  return dense && channels >= kFewestTurned && pixels <= kMostTurned * points && pixels * channels < (int64_t{1} << 31);
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

// An image of a batch, to be turned.
template <class T>
struct TurnedImage {
  const WarpCall& call;
  int64_t number;
  T* to;

  // Rows, counted over (z, y).
  static int64_t rows(const WarpCall& call) { return call.in_size[0] * call.in_size[1]; }
  void turn_rows(int64_t begin, int64_t end) const {
    const T* image = static_cast<const T*>(call.source) + number * call.image_strides.batch;
    turn_image(image, call, 0, call.channels, begin, end, to);
  }
};

// Of a call that is made image by image, each turned before: a thread has images of its own, or, where there are fewer images
// than threads, all share each. Work: {call, first image}, which threads `share`, or which is `run` from some `count` to another.
template <class T, class Work>
struct ByTurnedImages {
  static void run(const WarpCall& call) {
    if (call.batch >= call.threads) {
      return call.parallel(call.batch, call.threads, some_images, const_cast<WarpCall*>(&call));
    }
    Kept<Buffer<T>> pixels;
    const WarpCall turned = of_turned(call, *pixels);
    for (int64_t n = 0; n < call.batch; ++n) {
      TurnedImage<T> image = {call, n, pixels->data()};
      call.parallel(TurnedImage<T>::rows(call), call.threads, some_rows, &image);
      Work{turned, n}.share(1);
    }
  }

 private:
  // The call on what was turned latest, whichever image that is.
  static WarpCall of_turned(const WarpCall& call, Buffer<T>& pixels) {
    pixels.resize_unset(pixels_of(call) * call.channels);
    WarpCall turned = call;
    turned.source = pixels.data();
    turned.image_strides = turned_strides(call, call.channels);
    return turned;
  }
  static void some_images(void* context, int64_t begin, int64_t end) {
    const WarpCall& call = *static_cast<const WarpCall*>(context);
    Kept<Buffer<T>> pixels;
    const WarpCall turned = of_turned(call, *pixels);
    for (int64_t n = begin; n < end; ++n) {
      TurnedImage<T>{call, n, pixels->data()}.turn_rows(0, TurnedImage<T>::rows(call));
      const Work work{turned, n};
      work.run(0, work.count());
    }
  }
  static void some_rows(void* context, int64_t begin, int64_t end) {
    static_cast<const TurnedImage<T>*>(context)->turn_rows(begin, end);
  }
};

}  // namespace polyphase
