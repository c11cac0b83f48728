// Tiles of images whose taps all lie inside, nearest or bilinear, from positions to values without leaving registers.
//
// Most tiles are such, and for them most of what `warp_taps.h` finds out is known: no tap is outside, padding changes
// nothing, the second tap follows the first. What cannot be done here says so, and is done there.
#pragma once

#include "polyphase/positions.h"
#include "polyphase/warp_pixels.h"
#include "polyphase/warp_sample.h"

namespace polyphase {

// For what has no such tiles.
struct NoInnerTiles {
  template <class... Anything>
  explicit NoInnerTiles(const Anything&...) {}
};

#if defined(__AVX2__)

// Prologue: none, or bytes made floats. Of the nearest pixel, floats stand for any four bytes.
template <class Prologue, class Filter>
class InnerTiles {
 public:
  using S = typename Prologue::From;
  using V = typename Prologue::To;
  using Lanes = Vec<float>;
  using Index = Lanes::Index;
  static constexpr bool kLinear = __is_same(Filter, Linear);
  static constexpr bool kBytes = __is_same(Prologue, Widened<uint8_t, float>);
  static constexpr bool kFloats = sizeof(S) == 4 && Prologue::kIdentity && (!kLinear || __is_same(S, float));
  static constexpr bool kExists = kLinear ? kBytes || kFloats : __is_same(Filter, Nearest) && kFloats;
  static constexpr int kBlocks = kTile / Lanes::kLanes;

  InnerTiles(const WarpCall& call, const PixelAxis<float>& x, const PixelAxis<float>& y)
      : channels_(static_cast<int>(call.channels)),
        x_stride_(static_cast<int32_t>(call.image.x)),
        y_stride_(static_cast<int32_t>(call.image.y)),
        channel_stride_(call.image.channel),
        x_end_(x.last),
        y_end_(y.last) {
    const bool pixels = kLinear && call.channels > 1 && call.channels <= 4 && call.image.channel == 1;
    way_ = kNone;
    if (pixels && call.image.x == call.channels) {
      way_ = kPixels;
    } else if (!pixels && (!kLinear || call.image.x == 1)) {
      way_ = kPlanes;
    }
    if (!kLinear) return;
    // Reading a few elements beyond a tap is reading the next row's, but not from the last row.
    const int64_t beyond = kBytes ? 3 : way_ == kPixels ? PixelPairs::kReads - 1 - call.channels : 0;
    const int64_t rows = call.in_size[1], last = (call.in_size[2] - 1) * call.image.x;
    const int64_t within = (rows - 1) * call.image.y + last + (way_ == kPixels ? call.channels - 1 : 0);
    if (beyond > 0) y_end_ -= 1;
    if (beyond > 0 && (rows - 2) * call.image.y + last + beyond > within) way_ = kNone;
  }

  // Finds the taps of the pixels at these positions; false where they do not all lie inside.
  bool locate(const Lanes (&x)[kBlocks], const Lanes (&y)[kBlocks]) {
    const Lanes zero = Lanes::zero(), x_end = Lanes::broadcast(x_end_), y_end = Lanes::broadcast(y_end_);
    bool inside = way_ != kNone;
    for (int b = 0; b < kBlocks; ++b) inside &= x[b].lies_between(zero, x_end) && y[b].lies_between(zero, y_end);
    if (!inside) return false;
    for (int b = 0; b < kBlocks; ++b) {
      const Index column = kLinear ? Lanes::truncated(x[b]) : Lanes::nearest(x[b]);
      const Index row = kLinear ? Lanes::truncated(y[b]) : Lanes::nearest(y[b]);
      blocks_[b].first = Lanes::sum(Lanes::times(column, x_stride_), Lanes::times(row, y_stride_));
      if (!kLinear) continue;
      blocks_[b].right = x[b].minus(Lanes::of_index(column));
      blocks_[b].below = y[b].minus(Lanes::of_index(row));
    }
    return true;
  }

  // All channels of the located tile; row(c) is where channel c is made, done(c) is told when it is. False where a value
  // came out NaN: a tap of weight 0 may be the reason.
  template <class Row, class Done>
  bool sample(const S* image, Row row, Done done) {
    if constexpr (kLinear) {
      if (way_ == kPixels) {
        float* rows[4] = {};
        for (int c = 0; c < channels_; ++c) rows[c] = row(c);
        const bool numbers = sample_pixels(image, rows);
        for (int c = 0; numbers && c < channels_; ++c) done(c);
        return numbers;
      }
    }
    for (int c = 0; c < channels_; ++c, image += channel_stride_) {
      if (!sample_plane(image, reinterpret_cast<float*>(row(c)))) return false;
      done(c);
    }
    return true;
  }

 private:
  enum Way { kNone, kPlanes, kPixels };
  struct Block {
    Index first;         // of the first tap
    Lanes right, below;  // weights of the second tap along each axis
  };

  bool sample_plane(const S* plane, float* out) const {
    bool numbers = true;
    for (int b = 0; b < kBlocks; ++b) {
      const Block& block = blocks_[b];
      if constexpr (kLinear) {
        const Index second = Lanes::advance(block.first, y_stride_);
        const Lanes sum = between(between_pair(plane, block.first, block.right), between_pair(plane, second, block.right),
                                  block.below);
        if (!kBytes) numbers &= !sum.has_nan();
        sum.store(out + b * Lanes::kLanes);
      } else {
        Lanes::gather(reinterpret_cast<const float*>(plane), block.first).store(out + b * Lanes::kLanes);
      }
    }
    return numbers;
  }

  // (1 - weight) * first + weight * second, as eager has it: each product for itself, so that equal values stay.
  static Lanes between(Lanes first, Lanes second, Lanes weight) {
    const Lanes rest = Lanes::broadcast(1).minus(weight);
    return multiply_add(second, weight, multiply_add(first, rest, Lanes::zero()));
  }

  static Lanes between_pair(const S* plane, Index first, Lanes weight) {
    if constexpr (kBytes) {
      const Index bytes = Lanes::gather_bytes(plane, first);
      return between(Lanes::byte(bytes, 0), Lanes::byte(bytes, 1), weight);
    } else {
      const Lanes::Pair pair = Lanes::gather_pairs(plane, first);
      return between(pair.first, pair.second, weight);
    }
  }

  bool sample_pixels(const S* image, float* const (&rows)[4]) {
    if constexpr (kBytes) {
      for (int b = 0; b < kBlocks; ++b) sample_byte_pixels(image, blocks_[b], b * Lanes::kLanes, rows);
      return true;
    } else {
      return sample_float_pixels(image, rows);
    }
  }

  void sample_byte_pixels(const uint8_t* image, const Block& block, int i, float* const (&rows)[4]) const {
    const Index second = Lanes::advance(block.first, y_stride_);
    const Index a = Lanes::gather_bytes(image, block.first), b = Lanes::gather_bytes(image + x_stride_, block.first);
    const Index c = Lanes::gather_bytes(image, second), d = Lanes::gather_bytes(image + x_stride_, second);
    for (int l = 0; l < channels_; ++l) {
      const Lanes upper = between(Lanes::byte(a, l), Lanes::byte(b, l), block.right);
      const Lanes lower = between(Lanes::byte(c, l), Lanes::byte(d, l), block.right);
      between(upper, lower, block.below).store(rows[l] + i);
    }
  }

  bool sample_float_pixels(const float* image, float* const (&rows)[4]) {
    for (int b = 0; b < kBlocks; ++b) {
      const Lanes one = Lanes::broadcast(1), right = blocks_[b].right, below = blocks_[b].below;
      const Lanes left = one.minus(right), above = one.minus(below), zero = Lanes::zero();
      const int i = b * Lanes::kLanes;
      Lanes::store_index(blocks_[b].first, pixels_.first + i);
      multiply_add(above, left, zero).store(pixels_.weight[0] + i);
      multiply_add(above, right, zero).store(pixels_.weight[1] + i);
      multiply_add(below, left, zero).store(pixels_.weight[2] + i);
      multiply_add(below, right, zero).store(pixels_.weight[3] + i);
    }
    const PixelPairs pairs(channels_);
    inner_quads_to_rows(channels_, pixels_, rows, [&](int i, Quad weights) __attribute__((always_inline)) {
      return pairs.sum(image + pixels_.first[i], y_stride_, weights);
    });
    bool numbers = true;
    for (int c = 0; c < channels_; ++c) {
      for (int i = 0; i < kTile; i += Lanes::kLanes) numbers &= !Lanes::load(rows[c] + i).has_nan();
    }
    return numbers;
  }

  Way way_;
  int channels_;
  int32_t x_stride_, y_stride_;
  int64_t channel_stride_;
  float x_end_, y_end_;  // positions lie before
  Block blocks_[kBlocks];
  struct {
    alignas(64) int32_t first[kTile];
    alignas(64) float weight[4][kTile];
  } pixels_;
};

#endif

}  // namespace polyphase
