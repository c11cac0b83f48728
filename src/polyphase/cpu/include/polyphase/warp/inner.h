// Tiles of images from positions to values without leaving registers: nearest and bilinear, most dtypes and paddings.
//
// The two taps of a row are read as a pair of neighbours inside the image. Where one of them lies outside, the pair is moved
// inside: the other tap's weight goes with it to its new place, and what took the place of the tap outside has weight 0. A
// tile that cannot be done here is done by arrays (taps.h, sample.h): `sample` then returns false.
#pragma once

#include "polyphase/core/standard.h"
#include "polyphase/core/unroll.h"
#include "polyphase/warp/pixels.h"
#include "polyphase/warp/positions.h"
#include "polyphase/warp/sample.h"

namespace polyphase {

// Stands for what a kernel has no use for.
struct Unused {
  template <class... Anything>
  explicit Unused(const Anything&...) {}
  bool can() const { return false; }
};

#if defined(__AVX2__)

// A tile that nothing touches.
inline bool store_zeros(int64_t channels, float* out, int64_t stride) {
  for (int64_t c = 0; c < channels; ++c) {
    for (int i = 0; i < kTile; i += Vec<float>::kLanes) Vec<float>::zero().store(out + c * stride + i);
  }
  return true;
}

// Prologue: none, or bytes made floats. Where the nearest pixel is taken, a float stands for any element of four bytes.
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

  InnerTiles(const WarpCall& call, const PixelAxis<float>& x, const PixelAxis<float>& y)
      : channels_(static_cast<int>(call.channels)),
        x_stride_(static_cast<int32_t>(call.image_strides.x)),
        y_stride_(static_cast<int32_t>(call.image_strides.y)),
        channel_stride_(call.image_strides.channel),
        x_end_(x.last),
        y_end_(y.last),
        x_last_(static_cast<int32_t>(call.in_size[2] - 1)),
        y_last_(static_cast<int32_t>(call.in_size[1] - 1)),
        padding_(call.padding),
        pixel_squares_(channels_) {
    const bool pixels = kLinear && call.channels > 1 && call.channels <= 4 && call.image_strides.channel == 1;
    way_ = kNone;
    if (pixels && call.image_strides.x == call.channels) {
      way_ = kPixels;
    } else if (!pixels && (!kLinear || call.image_strides.x == 1)) {
      way_ = kPlanes;
    }
    if (!kLinear) {
      if (padding_ == kReflection) way_ = kNone;
      return;
    }
    // Loads go a few elements beyond the taps. These are the next row's; so the last row cannot be read here.
    const int64_t beyond = kBytes ? 3 : way_ == kPixels && PixelSquares::kReadsBeyond ? 7 - call.channels : 0;
    const int64_t rows = call.in_size[1], last = (call.in_size[2] - 1) * call.image_strides.x;
    const int64_t within = (rows - 1) * call.image_strides.y + last + (way_ == kPixels ? call.channels - 1 : 0);
    reads_beyond_ = beyond > 0;
    if (reads_beyond_) y_end_ -= 1;
    if (reads_beyond_ && (rows - 2) * call.image_strides.y + last + beyond > within) way_ = kNone;
    if (rows < (reads_beyond_ ? 3 : 2) || call.in_size[2] < 2) way_ = kNone;
  }

  // Whether there are tiles that can be done here.
  bool can() const { return way_ != kNone; }

  // A tile at these positions: so many channels, one row of `out` each. False where it cannot be done here, and where a value
  // came out NaN: a tap of weight 0 may be the reason.
  template <class Positions>
  POLYPHASE_BLOCK bool sample(const Positions& positions, const S* image, int64_t channels, V* out, int64_t stride) {
    if constexpr (!kLinear) {
      pick(positions, reinterpret_cast<const float*>(image), channels, reinterpret_cast<float*>(out), stride);
      return true;
    } else {
      const bool kept = !kBytes && way_ == kPixels;
      bool touch = false;
      for (int i = 0; i < kTile; i += Lanes::kLanes) {
        Lanes x, y;
        positions(i, x, y);
        Squares squares;
        if (!locate(x, y, squares)) return false;
        touch |= squares.touch;
        if (kept) {
          keep(squares, i);
        } else if (!sample_block(squares, image, channels, out + i, stride)) {
          return false;
        }
      }
      if constexpr (!kBytes) {
        if (kept && !touch) return store_zeros(channels, out, stride);
        if (kept) {
          prefetch_right(image, squares_.first, 2);
          return pixel_squares_.sum(squares_, image, y_stride_, out, stride);
        }
      }
      return true;
    }
  }

 private:
  enum Way { kNone, kPlanes, kPixels };
  // Where pairs lie along one axis.
  struct Pairs {
    Index place;          // of the first
    Lanes first, second;  // weights
    Lanes::Mask touched;  // one of them has a weight
    bool numbers;         // all positions are finite
  };
  // 2 x 2 pixels inside the image: the upper left one, and the weights of columns and rows.
  struct Squares {
    Index first;
    Lanes left, right, above, below;
    bool touch;  // some pixel has a weight
  };

  // A position too great for an integer, or NaN, becomes the least integer, which lies outside. All blocks are done together:
  // for each there is little to compute and much to wait for.
  template <class Positions>
  POLYPHASE_BLOCK void pick(const Positions& positions, const float* plane, int64_t channels, float* out,
                            int64_t stride) const {
    constexpr int kBlocks = kTile / Lanes::kLanes;
    Index place[kBlocks];
    Lanes::Mask inside[kBlocks];
    repeat<kBlocks>([&](auto b) __attribute__((always_inline)) {
      Lanes x, y;
      positions(b * Lanes::kLanes, x, y);
      if (padding_ == kBorder) {
        x = x.clamped(Lanes::broadcast(x_end_));
        y = y.clamped(Lanes::broadcast(y_end_));
      }
      const Index column = Lanes::nearest(x), row = Lanes::nearest(y);
      place[b] = Lanes::sum(Lanes::times(column, x_stride_), Lanes::times(row, y_stride_));
      inside[b] = Lanes::both(Lanes::within(column, x_last_), Lanes::within(row, y_last_));
    });
    int64_t c = 0;
    for (; channel_stride_ == 1 && c + 2 <= channels; c += 2, plane += 2, out += 2 * stride) {
      repeat<kBlocks>([&](auto b) __attribute__((always_inline)) {
        const Lanes::Pair pair = Lanes::gather_pairs(plane, Lanes::kept(place[b], inside[b]));
        pair.first.where(inside[b]).store(out + b * Lanes::kLanes);
        pair.second.where(inside[b]).store(out + stride + b * Lanes::kLanes);
      });
    }
    for (; c < channels; ++c, plane += channel_stride_, out += stride) {
      repeat<kBlocks>([&](auto b) __attribute__((always_inline)) {
        Lanes::gather(plane, place[b], inside[b]).store(out + b * Lanes::kLanes);
      });
    }
  }

  // False where it cannot be done here.
  POLYPHASE_BLOCK bool locate(Lanes x, Lanes y, Squares& squares) const {
    const bool inside = x.lies_between(Lanes::zero(), Lanes::broadcast(x_end_)) &&
                        y.lies_between(Lanes::zero(), Lanes::broadcast(y_end_));
    if (!inside && padding_ == kReflection) return false;
    const Pairs columns = inside ? inner_pairs(x) : pairs(x, x_last_), rows = inside ? inner_pairs(y) : pairs(y, y_last_);
    const Index first = Lanes::sum(Lanes::times(columns.place, x_stride_), Lanes::times(rows.place, y_stride_));
    squares = {first, columns.first, columns.second, rows.first, rows.second, true};
    if (inside) return true;
    const bool readable = !reads_beyond_ || Lanes::all(Lanes::within(rows.place, y_last_ - 2));
    squares.touch = Lanes::any(Lanes::both(columns.touched, rows.touched));
    return columns.numbers && rows.numbers && readable;
  }

  POLYPHASE_BLOCK bool sample_block(const Squares& squares, const S* image, int64_t channels, float* out,
                                    int64_t stride) const {
    if (!squares.touch) {
      for (int64_t c = 0; c < channels; ++c) Lanes::zero().store(out + c * stride);
      return true;
    }
    if constexpr (kBytes) {
      if (way_ == kPixels) return sample_byte_pixels(image, squares, out, stride);
    }
    for (int64_t c = 0; c < channels; ++c, image += channel_stride_, out += stride) {
      const Lanes upper = across(image, squares.first, squares);
      const Lanes lower = across(image, Lanes::advance(squares.first, y_stride_), squares);
      const Lanes sum = weighted(upper, squares.above, lower, squares.below);
      if (!kBytes && sum.has_nan()) return false;
      sum.store(out);
    }
    return true;
  }

  static Pairs inner_pairs(Lanes position) {
    const Index place = Lanes::truncated(position);
    const Lanes fraction = position.minus(Lanes::of_index(place));
    return {place, Lanes::broadcast(1).minus(fraction), fraction, Lanes::Mask(), true};
  }

  // A position less than a pixel outside has one tap inside. Before the image that is the first of the pair, after it the
  // second.
  POLYPHASE_BLOCK Pairs pairs(Lanes position, int32_t last) const {
    if (padding_ == kBorder) position = position.clamped(Lanes::broadcast(static_cast<float>(last)));
    const Lanes floor = position.floor();
    const Lanes fraction = position.minus(floor), rest = Lanes::broadcast(1).minus(fraction);
    const Index place = Lanes::truncated(floor);
    using Mask = Lanes::Mask;
    const Mask inside = Lanes::within(place, last - 1), before = Lanes::equal(place, -1), after = Lanes::equal(place, last);
    const Index to_last = Lanes::kept(Lanes::advance(place, -1), after);
    return {Lanes::sum(Lanes::kept(place, inside), to_last), rest.where(inside).plus(fraction.where(before)),
            fraction.where(inside).plus(rest.where(after)), Lanes::either(Lanes::either(inside, before), after),
            !fraction.has_nan()};
  }

  static Lanes weighted(Lanes first, Lanes first_weight, Lanes second, Lanes second_weight) {
    return multiply_add(second, second_weight, multiply_add(first, first_weight, Lanes::zero()));
  }

  // A row of the taps in a plane.
  static Lanes across(const S* plane, Index first, const Squares& squares) {
    if constexpr (kBytes) {
      const Index bytes = Lanes::gather_bytes(plane, first);
      return weighted(Lanes::byte(bytes, 0), squares.left, Lanes::byte(bytes, 1), squares.right);
    } else {
      const Lanes::Pair pair = Lanes::gather_pairs(plane, first);
      return weighted(pair.first, squares.left, pair.second, squares.right);
    }
  }

  bool sample_byte_pixels(const uint8_t* image, const Squares& squares, float* out, int64_t stride) const {
    const Index second = Lanes::advance(squares.first, y_stride_);
    const Index a = Lanes::gather_bytes(image, squares.first), b = Lanes::gather_bytes(image + x_stride_, squares.first);
    const Index c = Lanes::gather_bytes(image, second), d = Lanes::gather_bytes(image + x_stride_, second);
    for (int l = 0; l < channels_; ++l) {
      const Lanes upper = weighted(Lanes::byte(a, l), squares.left, Lanes::byte(b, l), squares.right);
      const Lanes lower = weighted(Lanes::byte(c, l), squares.left, Lanes::byte(d, l), squares.right);
      weighted(upper, squares.above, lower, squares.below).store(out + l * stride);
    }
    return true;
  }

  void keep(const Squares& squares, int i) {
    Lanes::store_index(squares.first, squares_.first + i);
    Lanes{squares.above.v * squares.left.v}.store(squares_.weight[0] + i);
    Lanes{squares.above.v * squares.right.v}.store(squares_.weight[1] + i);
    Lanes{squares.below.v * squares.left.v}.store(squares_.weight[2] + i);
    Lanes{squares.below.v * squares.right.v}.store(squares_.weight[3] + i);
  }

  Way way_;
  int channels_;
  int32_t x_stride_, y_stride_;
  int64_t channel_stride_;
  float x_end_, y_end_;  // positions whose taps lie inside are less
  int32_t x_last_, y_last_;
  int64_t padding_;
  bool reads_beyond_ = false;  // a few elements, which the last row does not have
  Conditional<kLinear && kFloats, PixelSquares, Unused> pixel_squares_;
  SquareTaps squares_;  // of a tile of pixels of floats
};

#endif

}  // namespace polyphase
