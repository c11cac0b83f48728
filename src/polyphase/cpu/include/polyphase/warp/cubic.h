// Bicubic tiles of images of floats: 4 x 4 neighbours inside the image, a row of them at a time.
//
// With zeros around the image, taps outside count nothing. Where there are such, the 4 x 4 neighbours are moved inside, and
// each has the weight of its own distance, which from 2 pixels on is 0. A tile that cannot be done here is done by arrays
// (taps.h, sample.h): `sample` then returns false.
#pragma once

#include "polyphase/core/unroll.h"
#include "polyphase/simd/quads.h"
#include "polyphase/warp/eights.h"
#include "polyphase/warp/pixels.h"
#include "polyphase/warp/positions.h"
#include "polyphase/warp/sample.h"

namespace polyphase {

#if defined(__AVX2__)

// The taps of a tile's pixels.
struct CubicTaps {
  alignas(64) int32_t first[kTile];    // the upper left one's offset
  alignas(64) float column[4][kTile];  // weights
  alignas(64) float row[4][kTile];
  int count;                           // pixels
};

// ---- planes: eight pixels at a time, for AVX-512 too: loads of four floats take the time, and there are as many of them
// whatever a vector's length

// Eight pixels' columns, each summed over its rows: p has those of pixels 0 and 4, q of 1 and 5, and so on.
struct ColumnSums {
  Quads p, q, r, s;

  // A row from `from` on, with the weights of the pixels in their order.
  template <class Offsets>
  POLYPHASE_BLOCK void add(const float* from, const Offsets& offsets, Quads weights) {
    p = multiply_add(Quads::load(from + offsets[0], from + offsets[4]), weights.all<0>(), p);
    q = multiply_add(Quads::load(from + offsets[1], from + offsets[5]), weights.all<1>(), q);
    r = multiply_add(Quads::load(from + offsets[2], from + offsets[6]), weights.all<2>(), r);
    s = multiply_add(Quads::load(from + offsets[3], from + offsets[7]), weights.all<3>(), s);
  }

  // Their sums with the weights of columns, in the pixels' order.
  POLYPHASE_BLOCK Quads sum(Quads a, Quads b, Quads c, Quads d) const {
    a.v *= p.v;
    b.v *= q.v;
    c.v *= r.v;
    d.v *= s.v;
    // They are transposed and added; the first addition comes between the two steps of the transposition.
    const __m256 first = _mm256_unpacklo_ps(a.v, b.v) + _mm256_unpackhi_ps(a.v, b.v);
    const __m256 last = _mm256_unpacklo_ps(c.v, d.v) + _mm256_unpackhi_ps(c.v, d.v);
    return {_mm256_shuffle_ps(first, last, 0x44) + _mm256_shuffle_ps(first, last, 0xee)};
  }
};

// Eight pixels from pixel i on, all channels. False where a value came out NaN.
POLYPHASE_BLOCK bool sum_fours(const CubicTaps& taps, int i, const float* image, int64_t y_stride, int64_t channel_stride,
                               int64_t channels, float* out, int64_t stride) {
  Quads a = Quads::load(taps.column[0] + i), b = Quads::load(taps.column[1] + i);
  Quads c = Quads::load(taps.column[2] + i), d = Quads::load(taps.column[3] + i);
  transpose(a, b, c, d);
  const Quads row_0 = Quads::load(taps.row[0] + i), row_1 = Quads::load(taps.row[1] + i);
  const Quads row_2 = Quads::load(taps.row[2] + i), row_3 = Quads::load(taps.row[3] + i);
  const int32_t* first = taps.first + i;
  const int64_t offsets[8] = {first[0], first[1], first[2], first[3], first[4], first[5], first[6], first[7]};
  __m256 numbers = _mm256_setzero_ps();
  for (int64_t p = 0; p < channels; ++p, image += channel_stride, out += stride) {
    const float* from = image;
    const auto next_row = [&] {
      from += y_stride;
      asm("" : "+r"(from));  // GCC would add the stride to each of the offsets, and run out of registers
      return from;
    };
    ColumnSums sums = {};
    sums.add(from, offsets, row_0);
    sums.add(next_row(), offsets, row_1);
    sums.add(next_row(), offsets, row_2);
    sums.add(next_row(), offsets, row_3);
    const Quads sum = sums.sum(a, b, c, d);
    numbers = _mm256_or_ps(numbers, _mm256_cmp_ps(sum.v, sum.v, _CMP_UNORD_Q));
    sum.store(out);
  }
  return _mm256_movemask_ps(numbers) == 0;
}

#if defined(__AVX512F__)

// ---- pixels: four neighbours of up to four channels fill a vector

class PixelFours {
 public:
  using Lanes = Vec<float>;

  explicit PixelFours(int channels) : channels_(channels), fours_(channels, 2 * channels) {}

  POLYPHASE_BLOCK bool sum(const CubicTaps& taps, const float* image, int64_t y_stride, float* out, int64_t stride) const {
    const auto columns = [&](int i) __attribute__((always_inline)) {
      const float* from = image + taps.first[i];
      const auto row = [&](int64_t k) { return Lanes::load_first(from + k * y_stride, 4 * channels_); };
      Lanes sum = {row(0).v * taps.row[0][i]};
      sum = multiply_add(row(1), Lanes::broadcast(taps.row[1][i]), sum);
      sum = multiply_add(row(2), Lanes::broadcast(taps.row[2][i]), sum);
      return multiply_add(row(3), Lanes::broadcast(taps.row[3][i]), sum);
    };
    return fours_.sum(taps.column, columns, out, stride);
  }

 private:
  int channels_;
  TapFours fours_;
};

#else

// ---- pixels: four neighbours are as many quads as there are channels; element e of these is of neighbour e / channels, and
// of channel e % channels

class PixelFours {
 public:
  explicit PixelFours(int channels) : channels_(channels) {}

  POLYPHASE_BLOCK bool sum(const CubicTaps& taps, const float* image, int64_t y_stride, float* out, int64_t stride) const {
    if (channels_ == 2) return sum_tile<2>(taps, image, y_stride, out, stride);
    if (channels_ == 3) return sum_tile<3>(taps, image, y_stride, out, stride);
    return sum_tile<4>(taps, image, y_stride, out, stride);
  }

 private:
  template <int kChannels>
  POLYPHASE_ROW_LOOP static bool sum_tile(const CubicTaps& taps, const float* image, int64_t y_stride, float* out,
                                          int64_t stride) {
    Quads total = Quads::zero();  // NaN where a value is
    for (int i = 0; i < taps.count; i += Quads::kPixels) {
      Quads sums[kChannels];
      sum_eight(taps, i, image, y_stride, sums);
      repeat<kChannels>([&](auto c) __attribute__((always_inline)) {
        sums[c].store(out + c * stride + i);
        total.v += sums[c].v;
      });
    }
    return !total.has_nan();
  }

  // The channels of eight pixels from pixel i on.
  template <int kChannels>
  POLYPHASE_BLOCK static void sum_eight(const CubicTaps& taps, int i, const float* image, int64_t y_stride,
                                        Quads (&sums)[kChannels]) {
    // Where a quad begins with the first channel, all do, and are added before they are transposed.
    constexpr int kKinds = 4 % kChannels == 0 ? 1 : kChannels;
    Quads columns[4], rows[4], products[kKinds][4];
    repeat<4>([&](auto k) __attribute__((always_inline)) {
      columns[k] = Quads::load(taps.column[k] + i);
      rows[k] = Quads::load(taps.row[k] + i);
    });
    transpose(columns[0], columns[1], columns[2], columns[3]);
    repeat<4>([&](auto j) __attribute__((always_inline)) {
      const float *first = image + taps.first[i + j], *second = image + taps.first[i + j + 4];
      repeat<kChannels>([&](auto q) __attribute__((always_inline)) {
        const auto row = [&](int64_t k) __attribute__((always_inline)) {
          return Quads::load(first + k * y_stride + 4 * q, second + k * y_stride + 4 * q);
        };
        Quads sum = {row(0).v * rows[0].template all<j>().v};
        sum = multiply_add(row(1), rows[1].template all<j>(), sum);
        sum = multiply_add(row(2), rows[2].template all<j>(), sum);
        sum = multiply_add(row(3), rows[3].template all<j>(), sum);
        constexpr int kFirst = 4 * q;
        const Quads weights = columns[j].template picked<kFirst / kChannels, (kFirst + 1) / kChannels, (kFirst + 2) / kChannels,
                                                         (kFirst + 3) / kChannels>();
        Quads& product = products[q % kKinds][j];
        product = q < kKinds ? Quads{sum.v * weights.v} : multiply_add(sum, weights, product);
      });
    });
    repeat<kKinds>([&](auto q) __attribute__((always_inline)) {
      transpose(products[q][0], products[q][1], products[q][2], products[q][3]);
      repeat<4>([&](auto e) __attribute__((always_inline)) {
        Quads& sum = sums[(4 * q + e) % kChannels];
        sum = 4 * q + e < kChannels ? products[q][e] : Quads{sum.v + products[q][e].v};
      });
    });
  }

  int channels_;
};

#endif

template <class Prologue>
class CubicTiles {
 public:
  using Lanes = Vec<float>;
  using Index = Lanes::Index;
  static constexpr bool kExists = __is_same(Prologue, Unchanged<float>);

  CubicTiles(const WarpCall& call, const PixelAxis<float>& x, const PixelAxis<float>& y)
      : x_stride_(static_cast<int32_t>(call.image_strides.x)),
        y_stride_(static_cast<int32_t>(call.image_strides.y)),
        channel_stride_(call.image_strides.channel),
        x_(x),
        y_(y),
        padding_(call.padding),
        fours_(static_cast<int>(call.channels)) {
    pixels_ = call.channels > 1 && call.channels <= 4 && call.image_strides.channel == 1 && call.image_strides.x == call.channels;
    can_ = (pixels_ || call.image_strides.x == 1) && call.in_size[1] >= 4 && call.in_size[2] >= 4;
  }

  bool can() const { return can_; }

  // As `InsideTiles` has it.
  template <class EachBlock>
  POLYPHASE_BLOCK bool sample(const EachBlock& each_block, int count, const float* image, int64_t channels, float* out, int64_t stride) {
    taps_.count = count;
    bool touch = false, here = true;
    each_block([&](int i, const Lanes* x, const Lanes* y) __attribute__((always_inline)) {
      for (int k = 0; k < kSideBySide; ++k) here = here && locate(x[k], y[k], i + Lanes::kLanes * k, touch);
    });
    if (!here) return false;
    if (!touch) return store_zeros(channels, out, stride);
    if (pixels_) {
      if (count == kTile) prefetch_right<2>(image, taps_.first);
      return fours_.sum(taps_, image, y_stride_, out, stride);
    }
    if (count == kTile) prefetch_planes_right(image, channel_stride_, channels, taps_.first);
    bool numbers = true;
    for (int i = 0; i < count; i += Quads::kPixels) {
      numbers &= sum_fours(taps_, i, image, y_stride_, channel_stride_, channels, out + i, stride);
    }
    return numbers;
  }

 private:
  // Finds the taps of the pixels from i on. False where that cannot be done here; `touch` becomes true where some tap lies
  // inside the image.
  POLYPHASE_ROW_LOOP bool locate(Lanes x, Lanes y, int i, bool& touch) {
    const Lanes one = Lanes::broadcast(1), two = Lanes::broadcast(2);
    const Lanes x_last = Lanes::broadcast(x_.last), y_last = Lanes::broadcast(y_.last);
    Lanes column, row;
    if (x.lies_between(one, x_last.minus(one)) && y.lies_between(one, y_last.minus(one))) {
      touch = true;
      column = inner_fours(x, taps_.column, i);
      row = inner_fours(y, taps_.row, i);
    } else {
      const bool finite = !x.minus(x.floor()).has_nan() && !y.minus(y.floor()).has_nan();
      if (!finite) return false;
      const Lanes before = Lanes::broadcast(-2);
      const auto near = Lanes::both(x.between(before, x_last.plus(two)), y.between(before, y_last.plus(two)));
      touch |= padding_ != kZeros || Lanes::any(near);
      column = padding_ == kZeros ? fours(x, x_.last, taps_.column, i) : padded_fours(x, x_, taps_.column, i);
      row = padding_ == kZeros ? fours(y, y_.last, taps_.row, i) : padded_fours(y, y_, taps_.row, i);
    }
    const Index along_x = Lanes::times(Lanes::truncated(column), x_stride_);
    const Index along_y = Lanes::times(Lanes::truncated(row), y_stride_);
    Lanes::store_index(Lanes::sum(along_x, along_y), taps_.first + i);
    return true;
  }

  // Keys' cubic at a distance below 1, and from 1 to 2. Both are 0 at their ends, but for the first at 0.
  static Lanes near(Lanes x) {
    const Lanes inner = multiply_add(x, Lanes::broadcast(kCubicSlope + 2), Lanes::broadcast(-kCubicSlope - 3));
    return multiply_add({inner.v * x.v}, x, Lanes::broadcast(1));
  }
  static Lanes far(Lanes x) {
    const Lanes inner = multiply_add(x, Lanes::broadcast(kCubicSlope), Lanes::broadcast(-5 * kCubicSlope));
    return multiply_add(multiply_add(inner, x, Lanes::broadcast(8 * kCubicSlope)), x, Lanes::broadcast(-4 * kCubicSlope));
  }

  // Along an axis: the weights of the four neighbours, and where the first of them is.
  static Lanes inner_fours(Lanes position, float (&weights)[4][kTile], int i) {
    const Lanes one = Lanes::broadcast(1), left = position.floor(), x = position.minus(left);
    far(x.plus(one)).store(weights[0] + i);
    near(x).store(weights[1] + i);
    near(one.minus(x)).store(weights[2] + i);
    far(Lanes::broadcast(2).minus(x)).store(weights[3] + i);
    return left.minus(one);
  }
  static Lanes fours(Lanes position, float last, float (&weights)[4][kTile], int i) {
    const Lanes one = Lanes::broadcast(1), first = position.floor().minus(one).clamped(Lanes::broadcast(last - 3));
    for (int k = 0; k < 4; ++k) {
      const Lanes distance = position.minus(first.plus(Lanes::broadcast(static_cast<float>(k)))).abs();
      near(distance.clamped(one)).plus(far(distance.clamped(one, Lanes::broadcast(2)))).store(weights[k] + i);
    }
    return first;
  }

  // Of taps that padding moves, each for itself: they stay among four neighbours, whose weights are sums of theirs.
  Lanes padded_fours(Lanes position, const PixelAxis<float>& axis, float (&weights)[4][kTile], int i) const {
    const Lanes half = Lanes::broadcast(0.5f);
    const Lanes left = inner_fours(position, weights, i);
    Lanes places[4], first = Lanes::broadcast(axis.last - 3);
    repeat<4>([&](auto k) __attribute__((always_inline)) {
      places[k] = padded(left.plus(Lanes::broadcast(static_cast<float>(k))), axis);
      first = first.lesser(places[k]);
    });
    Lanes sums[4] = {Lanes::zero(), Lanes::zero(), Lanes::zero(), Lanes::zero()};
    repeat<4>([&](auto k) __attribute__((always_inline)) {
      const Lanes weight = Lanes::load(weights[k] + i), from_first = places[k].minus(first);
      repeat<4>([&](auto n) __attribute__((always_inline)) {
        const Lanes place = Lanes::broadcast(static_cast<float>(n));
        const auto here = from_first.between(place.minus(half), place.plus(half));
        sums[n] = sums[n].plus(Lanes::zero().replaced(here, weight));
      });
    });
    repeat<4>([&](auto n) __attribute__((always_inline)) { sums[n].store(weights[n] + i); });
    return first;
  }

  // Whole places outside become places inside.
  Lanes padded(Lanes place, const PixelAxis<float>& axis) const {
    const Lanes last = Lanes::broadcast(axis.last);
    if (padding_ == kBorder) return place.clamped(last);
    const Lanes low = Lanes::broadcast(axis.low), twice = Lanes::broadcast(2 * axis.span);
    const Lanes distance = place.distance(low), folds = Lanes{distance.v / twice.v}.floor();
    const Lanes rest = distance.minus({folds.v * twice.v});
    return rest.lesser(twice.minus(rest)).plus(low).clamped(last);
  }

  bool can_, pixels_;
  int32_t x_stride_, y_stride_;
  int64_t channel_stride_;
  PixelAxis<float> x_, y_;
  int64_t padding_;
  PixelFours fours_;
  CubicTaps taps_;
};

#endif

}  // namespace polyphase
