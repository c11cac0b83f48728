// Bilinear tiles of images: floats, and bytes made floats; planes, and pixels of up to four.
//
// First the places and weights of all pixels of a tile are found, as if all taps lay inside the image; if some do not, once
// more with these taps moved inside. Then pixels are read and summed. Both are loops without branches; where a processor looks
// ahead little, they do the same to several vectors before they go on with any. A tile that cannot be done here is done by
// arrays (taps.h, sample.h): `sample` then returns false.
#pragma once

#include "polyphase/core/standard.h"
#include "polyphase/core/unroll.h"
#include "polyphase/warp/eights.h"
#include "polyphase/warp/fours.h"
#include "polyphase/warp/pixels.h"
#include "polyphase/warp/positions.h"
#include "polyphase/warp/sample.h"
#include "polyphase/warp/sixteens.h"
#include "polyphase/warp/windows.h"

namespace polyphase {

#if defined(POLYPHASE_WARPS_IN_REGISTERS)

// Finds the taps of tiles.
class SquareFinder {
 public:
  using Lanes = Vec<float>;
  using Index = Lanes::Index;
  static constexpr int kSide = kSideBySide;
  enum Found { kTaps, kNothing, kNotHere };  // taps to be read; none: the values are 0; some that are not for here

  // last_first: no first tap may lie behind it.
  SquareFinder(const WarpCall& call, const PixelAxis<float>& x, const PixelAxis<float>& y, int64_t last_first)
      : x_stride_(static_cast<int32_t>(call.image_strides.x)),
        y_stride_(static_cast<int32_t>(call.image_strides.y)),
        x_last_(x.last),
        y_last_(y.last),
        last_first_(static_cast<int32_t>(last_first)),
        padding_(call.padding) {}

  static bool can(const WarpCall& call) {
    constexpr int64_t kMost = 1 << 22;  // what `Rounded` counts to
    return call.in_size[1] >= 2 && call.in_size[2] >= 2 && call.in_size[1] <= kMost && call.in_size[2] <= kMost;
  }

  template <class EachBlock>
  POLYPHASE_BLOCK Found find(const EachBlock& each_block, SquareTaps& taps) {
    // Where the tile before had nothing to read, this one likely has not either.
    if (nothing_) nothing_ = search(positions_of(each_block)) == kNothing;
    if (nothing_) return kNothing;
    if (locate(each_block, taps)) return kTaps;
    const Found found = locate_anywhere(positions_of(each_block), taps);
    nothing_ = found == kNothing;
    return found;
  }

 private:
  // The weights of columns and rows, for the pixels from i on.
  POLYPHASE_BLOCK static void keep(SquareTaps& taps, int i, Lanes left, Lanes right, Lanes above, Lanes below) {
    Lanes{above.v * left.v}.store(taps.weight[0] + i);
    Lanes{above.v * right.v}.store(taps.weight[1] + i);
    Lanes{below.v * left.v}.store(taps.weight[2] + i);
    Lanes{below.v * right.v}.store(taps.weight[3] + i);
  }

  // False where a tap is outside. Of a position that is a whole number, the pixel there may be the left one or the right one.
  template <class EachBlock>
  POLYPHASE_BLOCK bool locate(const EachBlock& each_block, SquareTaps& taps) const {
    const Lanes half = Lanes::broadcast(0.5f), one = Lanes::broadcast(1);
    const int32_t x_stride = x_stride_, y_stride = y_stride_;
    Index most_column = Index(), most_row = Index(), most_first = Index();  // less than 0 is very much
    each_block([&](int i, const Lanes* x, const Lanes* y) __attribute__((always_inline)) {
      Lanes::Rounded column[kSide], row[kSide];
      Lanes right[kSide], below[kSide];
      repeat<kSide>([&](auto k) __attribute__((always_inline)) {
        column[k] = Lanes::Rounded::of(x[k].minus(half));
        row[k] = Lanes::Rounded::of(y[k].minus(half));
      });
      repeat<kSide>([&](auto k) __attribute__((always_inline)) {
        right[k] = x[k].minus(column[k].value());
        below[k] = y[k].minus(row[k].value());
      });
      repeat<kSide>([&](auto k) __attribute__((always_inline)) {
        const Index at_x = column[k].index(), at_y = row[k].index();
        const Index first = Lanes::sum(Lanes::times(at_x, x_stride), Lanes::times(at_y, y_stride));
        most_column = Lanes::greater(most_column, at_x);
        most_row = Lanes::greater(most_row, at_y);
        most_first = Lanes::greater(most_first, first);
        Lanes::store_index(first, taps.first + i + Lanes::kLanes * k);
      });
      repeat<kSide>([&](auto k) __attribute__((always_inline)) {
        keep(taps, i + Lanes::kLanes * k, one.minus(right[k]), right[k], one.minus(below[k]), below[k]);
      });
    });
    const auto inside = Lanes::both(Lanes::within(most_column, static_cast<int32_t>(x_last_) - 1),
                                    Lanes::within(most_row, static_cast<int32_t>(y_last_) - 1));
    return Lanes::all(Lanes::both(inside, Lanes::within(most_first, last_first_)));
  }

  // All positions of a tile: those of few tiles are looked at a second time.
  struct Tile {
    TileOf<float> x, y;
  };
  template <class EachBlock>
  POLYPHASE_ROW_LOOP Tile positions_of(const EachBlock& each_block) const {
    Tile tile;
    each_block([&](int i, const Lanes* x, const Lanes* y) __attribute__((always_inline)) {
      repeat<kSide>([&](auto k) __attribute__((always_inline)) {
        x[k].store(tile.x.at + i + Lanes::kLanes * k);
        y[k].store(tile.y.at + i + Lanes::kLanes * k);
      });
    });
    return tile;
  }

  // A pair of taps that is not inside is moved there: each weighs by its own distance, and nothing from 1 pixel on.
  POLYPHASE_ROW_LOOP Found locate_anywhere(const Tile& tile, SquareTaps& taps) const {
    if (padding_ == kReflection) return kNotHere;
    const Found found = search(tile);
    if (found != kTaps) return found;
    Index most_first = Index();
    for (int i = 0; i < kTile; i += Lanes::kLanes) {
      const Moved columns = moved(Lanes::load(tile.x.at + i), x_last_), rows = moved(Lanes::load(tile.y.at + i), y_last_);
      const Index first = Lanes::sum(Lanes::times(columns.place, x_stride_), Lanes::times(rows.place, y_stride_));
      most_first = Lanes::greater(most_first, first);
      Lanes::store_index(first, taps.first + i);
      keep(taps, i, columns.first, columns.second, rows.first, rows.second);
    }
    return Lanes::all(Lanes::within(most_first, last_first_)) ? kTaps : kNotHere;
  }

  // Whether a tap may lie inside. Positions that are not finite are not for here.
  POLYPHASE_ROW_LOOP Found search(const Tile& tile) const {
    const Lanes none = Lanes::zero(), before = Lanes::broadcast(-1);
    const Lanes x_end = Lanes::broadcast(x_last_ + 1), y_end = Lanes::broadcast(y_last_ + 1);
    Lanes least_x = x_end, least_y = y_end, most_x = before, most_y = before;
    Lanes nothing = none;  // and NaN where a position is not finite
    for (int i = 0; i < kTile; i += Lanes::kLanes) {
      const Lanes x = Lanes::load(tile.x.at + i), y = Lanes::load(tile.y.at + i);
      least_x = least_x.lesser(x), most_x = most_x.greater(x);
      least_y = least_y.lesser(y), most_y = most_y.greater(y);
      nothing = multiply_add(x, none, multiply_add(y, none, nothing));
    }
    if (nothing.has_nan()) return kNotHere;
    const bool outside = Lanes::all(most_x.at_most(before)) || Lanes::all(x_end.at_most(least_x)) ||
                         Lanes::all(most_y.at_most(before)) || Lanes::all(y_end.at_most(least_y));
    return outside && padding_ == kZeros ? kNothing : kTaps;
  }

  struct Moved {
    Index place;          // of the first
    Lanes first, second;  // weights
  };
  POLYPHASE_BLOCK Moved moved(Lanes position, float last) const {
    const Lanes none = Lanes::zero(), one = Lanes::broadcast(1);
    if (padding_ == kBorder) position = position.greater(none).lesser(Lanes::broadcast(last));
    const Index place = Lanes::truncated(position.greater(none).lesser(Lanes::broadcast(last - 1)));
    const Lanes from_first = position.minus(Lanes::of_index(place));
    return {place, one.minus(from_first.abs()).greater(none), one.minus(from_first.minus(one).abs()).greater(none)};
  }

  int32_t x_stride_, y_stride_;
  float x_last_, y_last_;  // the last column and row
  int32_t last_first_;
  int64_t padding_;
  bool nothing_ = false;  // of the latest tile
};

// Prologue: none, or bytes made floats.
template <class Prologue, class Filter>
class InsideTiles {
 public:
  using S = typename Prologue::From;
  using V = typename Prologue::To;
  static constexpr bool kBytes = __is_same(Prologue, Widened<uint8_t, float>);
  static constexpr bool kFloats = __is_same(Prologue, Unchanged<float>);
  static constexpr bool kExists = __is_same(Filter, Linear) && (kBytes || kFloats);

  InsideTiles(const WarpCall& call, const PixelAxis<float>& x, const PixelAxis<float>& y)
      : way_(way_of(call)),
        channels_(static_cast<int>(call.channels)),
        y_stride_(call.image_strides.y),
        channel_stride_(call.image_strides.channel),
        windows_(call, way_ != kPixels, [&](int64_t read) { return last_of(call, way_, read); }),
        finder_(call, x, y, last_first(call, way_)) {
    if (!SquareFinder::can(call) || last_first(call, way_) < 0) way_ = kNone;
  }

  // Whether there are tiles that can be done here.
  bool can() const { return way_ != kNone; }

  // A tile at these positions: so many channels, one row of `out` each. False where it cannot be done here, and where a value
  // came out NaN: a tap of weight 0 may be the reason.
  template <class EachBlock>
  POLYPHASE_BLOCK bool sample(const EachBlock& each_block, const S* image, int64_t channels, V* out, int64_t stride) {
    SquareTaps taps;
    const auto found = finder_.find(each_block, taps);
    if (found == SquareFinder::kNothing) return store_zeros(channels, out, stride);
    if (found == SquareFinder::kNotHere) return false;
    const S* const further = image + further_row(taps.first[0]);
    if (windows_.hold(taps.first)) {
      windows_.prefetch(further, channels, taps.first);
      return windows_.sum(taps, image, channels, out, stride);
    }
    if (way_ == kPlanes) {
      if (kPlanesArePrefetched) prefetch_planes_right(further, channel_stride_, channels, taps.first);
      return sum_plane_squares(taps, image, y_stride_, channel_stride_, channels, out, stride);
    }
    prefetch_right<(kBytes ? 4 : kPrefetchedPixel)>(further, taps.first);
    if constexpr (!kBytes) {
      return sum_pixel_squares(taps, image, y_stride_, channels_, out, stride);
    } else {
      if (channels_ == 2) sum_byte_squares<2>(taps, image, y_stride_, out, stride);
      if (channels_ == 3) sum_byte_squares<3>(taps, image, y_stride_, out, stride);
      if (channels_ == 4) sum_byte_squares<4>(taps, image, y_stride_, out, stride);
      return true;
    }
  }

 private:
  enum Way { kNone, kPlanes, kPixels };

  static Way way_of(const WarpCall& call) {
    const bool pixels = call.channels > 1 && call.channels <= 4 && call.image_strides.channel == 1;
    if (pixels) return call.image_strides.x == call.channels ? kPixels : kNone;
    return call.image_strides.x == 1 ? kPlanes : kNone;
  }

  // From the first tap to the last element that is read, which is beyond the taps: that must be the image's too.
  static int64_t last_first(const WarpCall& call, Way way) {
    return last_of(call, way, way == kPlanes ? kReadOfPlane<S> : kBytes ? kReadOfBytes : call.channels + 4);
  }

  // The last offset from which so many elements of both rows can be read.
  static int64_t last_of(const WarpCall& call, Way way, int64_t read) {
    const int64_t below = call.image_strides.y;
    const int64_t size = (call.in_size[1] - 1) * below + (call.in_size[2] - 1) * call.image_strides.x +
                         (way == kPixels ? call.channels : 1);
    return size - (below + read);
  }

  // The offset of that row of taps which tiles before have not read: rows of a band lead down the image, or up.
  POLYPHASE_BLOCK int64_t further_row(int32_t first) {
    const bool down = first >= latest_;
    latest_ = first;
    return down ? y_stride_ : 0;
  }

  Way way_;
  int channels_;
  int64_t y_stride_, channel_stride_;
  int32_t latest_ = 0;  // the first tap of the tile before
  WindowTiles<S> windows_;
  SquareFinder finder_;
};

#endif

}  // namespace polyphase
