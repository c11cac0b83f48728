// Tiles of images from positions to values without leaving registers: nearest and bilinear, most dtypes and paddings.
//
// Two taps of a row are read as a pair that lies inside; a tap outside has no weight, and its neighbour's weight goes to
// where in the pair the neighbour is. What cannot be done here says so, and is done by `warp_taps.h` and its likes.
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
        y_end_(y.last),
        x_last_(static_cast<int32_t>(call.in_size[2] - 1)),
        y_last_(static_cast<int32_t>(call.in_size[1] - 1)),
        padding_(call.padding) {
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
    reads_beyond_ = beyond > 0;
    if (reads_beyond_) y_end_ -= 1;
    if (reads_beyond_ && (rows - 2) * call.image.y + last + beyond > within) way_ = kNone;
    if (rows < (reads_beyond_ ? 3 : 2) || call.in_size[2] < 2) way_ = kNone;
  }

  // Finds the taps of the pixels at these positions; false where that is for others to do.
  bool locate(const Lanes (&x)[kBlocks], const Lanes (&y)[kBlocks]) {
    if (way_ == kNone) return false;
    return kLinear ? locate_pairs(x, y) : locate_nearest(x, y);
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
    Index first;                       // nearest: of the tap; bilinear: of the upper left of 2 x 2 pixels inside the image
    Index inside;                      // nearest: all bits where the tap is inside the image
    Lanes left, right, above, below;  // bilinear: weights of columns and rows
  };
  // Where pairs lie along one axis.
  struct Pairs {
    Index place;
    Lanes first, second;  // weights
    bool touch, numbers;  // some of them have a weight; all positions are finite
  };

  bool locate_pairs(const Lanes (&x)[kBlocks], const Lanes (&y)[kBlocks]) {
    const Lanes zero = Lanes::zero(), one = Lanes::broadcast(1);
    const Lanes x_end = Lanes::broadcast(x_end_), y_end = Lanes::broadcast(y_end_);
    bool inside = true;
    for (int b = 0; b < kBlocks; ++b) inside &= x[b].lies_between(zero, x_end) && y[b].lies_between(zero, y_end);
    if (!inside) return padding_ != kReflection && locate_at_borders(x, y);
    for (int b = 0; b < kBlocks; ++b) {
      const Index column = Lanes::truncated(x[b]), row = Lanes::truncated(y[b]);
      Block& block = blocks_[b];
      block.first = Lanes::sum(Lanes::times(column, x_stride_), Lanes::times(row, y_stride_));
      block.right = x[b].minus(Lanes::of_index(column));
      block.below = y[b].minus(Lanes::of_index(row));
      block.left = one.minus(block.right);
      block.above = one.minus(block.below);
    }
    return true;
  }

  bool locate_at_borders(const Lanes (&x)[kBlocks], const Lanes (&y)[kBlocks]) {
    bool touch = false;
    for (int b = 0; b < kBlocks; ++b) {
      const Pairs columns = pairs(x[b], x_last_), rows = pairs(y[b], y_last_);
      const bool readable = !reads_beyond_ || Lanes::all(Lanes::within(rows.place, y_last_ - 2));
      if (!columns.numbers || !rows.numbers || !readable) return false;
      touch |= columns.touch && rows.touch;
      blocks_[b].first = Lanes::sum(Lanes::times(columns.place, x_stride_), Lanes::times(rows.place, y_stride_));
      blocks_[b].left = columns.first;
      blocks_[b].right = columns.second;
      blocks_[b].above = rows.first;
      blocks_[b].below = rows.second;
    }
    return touch;
  }

  // Positions within a pixel outside have one tap inside: the pair's first before the image, its second after it.
  POLYPHASE_BLOCK Pairs pairs(Lanes position, int32_t last) const {
    if (padding_ == kBorder) position = position.clamped(Lanes::broadcast(static_cast<float>(last)));
    const Lanes floor = position.floor();
    const Lanes fraction = position.minus(floor), rest = Lanes::broadcast(1).minus(fraction);
    const Index place = Lanes::truncated(floor);
    const Index inside = Lanes::within(place, last - 1), before = Lanes::equal(place, -1), after = Lanes::equal(place, last);
    const Index to_last = Lanes::both(after, Lanes::advance(place, -1));
    return {Lanes::sum(Lanes::both(inside, place), to_last), rest.where(inside).plus(fraction.where(before)),
            fraction.where(inside).plus(rest.where(after)), Lanes::any(Lanes::sum(Lanes::sum(inside, before), after)),
            !fraction.has_nan()};
  }

  // A position too great for an integer, or no number, becomes the least one, which is outside.
  bool locate_nearest(const Lanes (&x)[kBlocks], const Lanes (&y)[kBlocks]) {
    if (padding_ == kReflection) return false;
    const Lanes x_end = Lanes::broadcast(x_end_), y_end = Lanes::broadcast(y_end_);
    for (int b = 0; b < kBlocks; ++b) {
      const Index column = Lanes::nearest(padding_ == kBorder ? x[b].clamped(x_end) : x[b]);
      const Index row = Lanes::nearest(padding_ == kBorder ? y[b].clamped(y_end) : y[b]);
      const Index offset = Lanes::sum(Lanes::times(column, x_stride_), Lanes::times(row, y_stride_));
      blocks_[b].inside = Lanes::both(Lanes::within(column, x_last_), Lanes::within(row, y_last_));
      blocks_[b].first = Lanes::both(offset, blocks_[b].inside);
    }
    return true;
  }

  bool sample_plane(const S* plane, float* out) const {
    bool numbers = true;
    for (int b = 0; b < kBlocks; ++b) {
      const Block& block = blocks_[b];
      if constexpr (kLinear) {
        const Lanes upper = across(plane, block.first, block);
        const Lanes lower = across(plane, Lanes::advance(block.first, y_stride_), block);
        const Lanes sum = weighted(upper, block.above, lower, block.below);
        if (!kBytes) numbers &= !sum.has_nan();
        sum.store(out + b * Lanes::kLanes);
      } else {
        const Lanes values = Lanes::gather(reinterpret_cast<const float*>(plane), block.first);
        values.where(block.inside).store(out + b * Lanes::kLanes);
      }
    }
    return numbers;
  }

  static Lanes weighted(Lanes first, Lanes first_weight, Lanes second, Lanes second_weight) {
    return multiply_add(second, second_weight, multiply_add(first, first_weight, Lanes::zero()));
  }

  // A row of the taps in a plane.
  static Lanes across(const S* plane, Index first, const Block& block) {
    if constexpr (kBytes) {
      const Index bytes = Lanes::gather_bytes(plane, first);
      return weighted(Lanes::byte(bytes, 0), block.left, Lanes::byte(bytes, 1), block.right);
    } else {
      const Lanes::Pair pair = Lanes::gather_pairs(plane, first);
      return weighted(pair.first, block.left, pair.second, block.right);
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
      const Lanes upper = weighted(Lanes::byte(a, l), block.left, Lanes::byte(b, l), block.right);
      const Lanes lower = weighted(Lanes::byte(c, l), block.left, Lanes::byte(d, l), block.right);
      weighted(upper, block.above, lower, block.below).store(rows[l] + i);
    }
  }

  bool sample_float_pixels(const float* image, float* const (&rows)[4]) {
    for (int b = 0; b < kBlocks; ++b) {
      const Block& block = blocks_[b];
      const Lanes zero = Lanes::zero();
      const int i = b * Lanes::kLanes;
      Lanes::store_index(block.first, pixels_.first + i);
      multiply_add(block.above, block.left, zero).store(pixels_.weight[0] + i);
      multiply_add(block.above, block.right, zero).store(pixels_.weight[1] + i);
      multiply_add(block.below, block.left, zero).store(pixels_.weight[2] + i);
      multiply_add(block.below, block.right, zero).store(pixels_.weight[3] + i);
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
  float x_end_, y_end_;  // positions of pairs lie before
  int32_t x_last_, y_last_;
  int64_t padding_;
  bool reads_beyond_ = false;  // a few elements, which the last row does not have
  Block blocks_[kBlocks];
  struct {
    alignas(64) int32_t first[kTile];
    alignas(64) float weight[4][kTile];
  } pixels_;
};

#endif

}  // namespace polyphase
