// Bilinear tiles of images: floats, and bytes made floats; planes, and pixels of up to four; doubles on x86.
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
#include "polyphase/warp/small_planes.h"
#include "polyphase/warp/windows.h"

namespace polyphase {

#if defined(POLYPHASE_WARPS_IN_REGISTERS)

// Finds the taps of tiles.
template <class T>
class SquareFinder {
 public:
  using Lanes = Vec<T>;
  using Index = typename Lanes::Index;
  using Rounded = typename Lanes::Rounded;
  using Taps = SquareTapsOf<T>;
  static constexpr int kSide = kSideBySide;
  enum Found { kTaps, kNothing, kNotHere };  // taps to be read; none: the values are 0; some that are not for here

  // last_first: first taps that lie behind it are told of by `ends`.
  SquareFinder(const WarpCall& call, const PixelAxis<T>& x, const PixelAxis<T>& y, int64_t last_first)
      : x_stride_(static_cast<int32_t>(call.image_strides.x)),
        y_stride_(static_cast<int32_t>(call.image_strides.y)),
        x_(x),
        y_(y),
        last_first_(static_cast<int32_t>(last_first)),
        padding_(call.padding) {}

  // Whether a first tap of the latest tile lies so near the image's end that more cannot be read from there on.
  bool ends() const { return ends_; }

  static bool can(const WarpCall& call) {
    constexpr int64_t kMost = 1 << 22;  // what `Rounded` counts to
    return call.in_size[1] >= 2 && call.in_size[2] >= 2 && call.in_size[1] <= kMost && call.in_size[2] <= kMost;
  }

  template <class EachBlock>
  POLYPHASE_BLOCK Found find(const EachBlock& each_block, Taps& taps) {
    // Where the tile before was not all inside, this one likely is not either.
    if (!reaches_out_ && locate(each_block, taps)) return kTaps;
    return padding_ == kReflection ? locate_reflected(each_block, taps) : locate_anywhere(each_block, taps);
  }

 private:
  // The weights of columns and rows, for the pixels from i on.
  POLYPHASE_BLOCK static void keep(Taps& taps, int i, Lanes left, Lanes right, Lanes above, Lanes below) {
    Lanes{above.v * left.v}.store(taps.weight[0] + i);
    Lanes{above.v * right.v}.store(taps.weight[1] + i);
    Lanes{below.v * left.v}.store(taps.weight[2] + i);
    Lanes{below.v * right.v}.store(taps.weight[3] + i);
  }

  // False where a tap is outside. Of a position that is a whole number, the pixel there may be the left one or the right one.
  template <class EachBlock>
  POLYPHASE_BLOCK bool locate(const EachBlock& each_block, Taps& taps) {
    const Lanes half = Lanes::broadcast(T(0.5)), one = Lanes::broadcast(1);
    const int32_t x_stride = x_stride_, y_stride = y_stride_;
    Index most_column = Index(), most_row = Index(), most_first = Index();  // less than 0 is very much
    each_block([&](int i, const Lanes* x, const Lanes* y) __attribute__((always_inline)) {
      Rounded column[kSide], row[kSide];
      Lanes right[kSide], below[kSide];
      repeat<kSide>([&](auto k) __attribute__((always_inline)) {
        column[k] = Rounded::of(x[k].minus(half));
        row[k] = Rounded::of(y[k].minus(half));
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
    ends_ = !Lanes::all(Lanes::within(most_first, last_first_));
    return Lanes::all(Lanes::both(Lanes::within(most_column, static_cast<int32_t>(x_.last) - 1),
                                  Lanes::within(most_row, static_cast<int32_t>(y_.last) - 1)));
  }

  // A pair of taps that is not inside is moved there: each weighs by its own distance, and nothing from 1 pixel on. Positions that
  // are not finite are not for here.
  template <class EachBlock>
  POLYPHASE_ROW_LOOP Found locate_anywhere(const EachBlock& each_block, Taps& taps) {
    const Lanes none = Lanes::zero(), before = Lanes::broadcast(-1), one = Lanes::broadcast(1);
    const Lanes x_last = Lanes::broadcast(x_.last), y_last = Lanes::broadcast(y_.last);
    Lanes least_x = Lanes::broadcast(T(1e30)), least_y = least_x, most_x = Lanes::broadcast(T(-1e30)), most_y = most_x;
    Lanes nothing = none;  // and NaN where a position is not finite
    Index most_first = Index();
    each_block([&](int i, const Lanes* x, const Lanes* y) __attribute__((always_inline)) {
      repeat<kSide>([&](auto k) __attribute__((always_inline)) {
        least_x = least_x.lesser(x[k]), most_x = most_x.greater(x[k]);
        least_y = least_y.lesser(y[k]), most_y = most_y.greater(y[k]);
        nothing = multiply_add(x[k], none, multiply_add(y[k], none, nothing));
        const Moved columns = moved(x[k], x_.last), rows = moved(y[k], y_.last);
        const Index first = Lanes::sum(Lanes::times(columns.place, x_stride_), Lanes::times(rows.place, y_stride_));
        most_first = Lanes::greater(most_first, first);
        Lanes::store_index(first, taps.first + i + Lanes::kLanes * k);
        keep(taps, i + Lanes::kLanes * k, columns.first, columns.second, rows.first, rows.second);
      });
    });
    if (nothing.has_nan()) return kNotHere;
    ends_ = !Lanes::all(Lanes::within(most_first, last_first_));
    reaches_out_ = !Lanes::all(none.at_most(least_x)) || !Lanes::all(none.at_most(least_y)) ||
                   !Lanes::all(most_x.at_most(x_last.minus(one))) || !Lanes::all(most_y.at_most(y_last.minus(one)));
    const bool outside = Lanes::all(most_x.at_most(before)) || Lanes::all(x_last.plus(one).at_most(least_x)) ||
                         Lanes::all(most_y.at_most(before)) || Lanes::all(y_last.plus(one).at_most(least_y));
    return outside && padding_ == kZeros ? kNothing : kTaps;
  }

  template <class EachBlock>
  POLYPHASE_ROW_LOOP Found locate_reflected(const EachBlock& each_block, Taps& taps) {
    TileOf<T> columns = {}, rows = {};
    each_block([&](int i, const Lanes* x, const Lanes* y) __attribute__((always_inline)) {
      repeat<kSide>([&](auto k) __attribute__((always_inline)) {
        x[k].store(columns.at + i + Lanes::kLanes * k);
        y[k].store(rows.at + i + Lanes::kLanes * k);
      });
    });
    for (int i = 0; i < kTile; ++i) {
      const T x = columns.at[i], y = rows.at[i], nothing = (x + y) * 0;  // NaN stays, though no number is clamped to 0
      const T folded_x = reflected(x, x_), folded_y = reflected(y, y_);
      columns.at[i] = (lies_inside(x, x_) ? x : folded_x) + nothing;  // as `locate` has it
      rows.at[i] = lies_inside(y, y_) ? y : folded_y;
    }
    const Found found = locate_anywhere(
        [&](const auto& each) __attribute__((always_inline)) {
          for (int i = 0; i < taps.count; i += kSide * Lanes::kLanes) {
            Lanes x[kSide], y[kSide];
            repeat<kSide>([&](auto k) __attribute__((always_inline)) {
              x[k] = Lanes::load(columns.at + i + Lanes::kLanes * k);
              y[k] = Lanes::load(rows.at + i + Lanes::kLanes * k);
            });
            each(i, x, y);
          }
        },
        taps);
    return found;
  }

  struct Moved {
    Index place;          // of the first
    Lanes first, second;  // weights
  };
  POLYPHASE_BLOCK Moved moved(Lanes position, T last) const {
    const Lanes none = Lanes::zero(), one = Lanes::broadcast(1);
    if (padding_ == kBorder) position = position.greater(none).lesser(Lanes::broadcast(last));
    const Index place = Lanes::truncated(position.greater(none).lesser(Lanes::broadcast(last - 1)));
    const Lanes from_first = position.minus(Lanes::of_index(place));
    const Lanes beyond = Lanes::broadcast(2).minus(from_first);  // of a pair inside, the weights are those of `locate`, to the bit
    return {place, one.minus(from_first.abs()).greater(none), from_first.lesser(beyond).greater(none)};
  }

  int32_t x_stride_, y_stride_;
  PixelAxis<T> x_, y_;
  int32_t last_first_;
  int64_t padding_;
  bool reaches_out_ = false, ends_ = false;  // of the latest tile
};

// The taps of pixels that lie anywhere, each read for itself.
template <class T>
POLYPHASE_ROW_LOOP bool sum_squares_apart(const SquareTapsOf<T>& taps, const T* image, const ImageStrides& strides,
                                          int64_t channels, T* out, int64_t stride) {
  using Lanes = Vec<T>;
  const T *const right = image + strides.x, *const below = image + strides.y, *const below_right = below + strides.x;
  Lanes total = Lanes::zero();  // NaN where a value is
  for (int i = 0; i < taps.count; i += Lanes::kLanes) {
    const typename Lanes::Index first = Lanes::load_index(taps.first + i);
    const Lanes a = Lanes::load(taps.weight[0] + i), b = Lanes::load(taps.weight[1] + i);
    const Lanes c = Lanes::load(taps.weight[2] + i), d = Lanes::load(taps.weight[3] + i);
    T* to = out + i;
    for (int64_t channel = 0, at = 0; channel < channels; ++channel, at += strides.channel, to += stride) {
      const Lanes upper = multiply_add(Lanes::gather(right + at, first), b, {Lanes::gather(image + at, first).v * a.v});
      const Lanes lower = multiply_add(Lanes::gather(below_right + at, first), d, {Lanes::gather(below + at, first).v * c.v});
      const Lanes sum = upper.plus(lower);
      total = total.plus(sum);
      sum.store(to);
    }
  }
  return !total.has_nan();
}

// Prologue: none, or bytes made floats.
template <class Prologue, class Filter>
class InsideTiles {
 public:
  using S = typename Prologue::From;
  using V = typename Prologue::To;
  static constexpr bool kBytes = __is_same(Prologue, Widened<uint8_t, float>);
  static constexpr bool kFloats = __is_same(Prologue, Unchanged<float>);
#if defined(__AVX2__)
  static constexpr bool kDoubles = __is_same(Prologue, Unchanged<double>);
#else
  static constexpr bool kDoubles = false;
#endif
  static constexpr bool kExists = __is_same(Filter, Linear) && (kBytes || kFloats || kDoubles);

  InsideTiles(const WarpCall& call, const PixelAxis<V>& x, const PixelAxis<V>& y)
      : way_(way_of(call)),
        channels_(static_cast<int>(call.channels)),
        strides_(call.image_strides),
        small_(call),
        windows_(call, way_ != kPixels, [&](int64_t read) { return last_of(call, way_, read); }),
        finder_(call, x, y, last_first(call, way_)) {
    if (way_ != kNone && last_first(call, way_) < 0) way_ = kBytes ? kNone : kApart;
    if (!SquareFinder<V>::can(call)) way_ = kNone;
  }

  // Whether there are tiles that can be done here.
  bool can() const { return way_ != kNone; }

  // The first `count` pixels of a tile at these positions: so many channels, one row of `out` each, of which what lies behind
  // those pixels is of no meaning. False where it cannot be done here, and where a value came out NaN: a tap of weight 0 may be
  // the reason.
  template <class EachBlock>
  POLYPHASE_BLOCK bool sample(const EachBlock& each_block, int count, const S* image, int64_t channels, V* out, int64_t stride) {
    SquareTapsOf<V> taps;
    taps.count = count;
    const auto found = finder_.find(each_block, taps);
    if (found == SquareFinder<V>::kNothing) return store_zeros(channels, out, stride);
    if (found == SquareFinder<V>::kNotHere) return false;
    if constexpr (kBytes) {
      return !finder_.ends() && sum(taps, image, channels, out, stride);
    } else if constexpr (kDoubles) {
      return sum_squares_apart(taps, image, strides_, channels, out, stride);
    } else {
      if (way_ == kApart || finder_.ends()) return sum_squares_apart(taps, image, strides_, channels, out, stride);
      return sum(taps, image, channels, out, stride);
    }
  }

 private:
  enum Way { kNone, kSmallPlanes, kPlanes, kPixels, kApart };

  // A tile whose taps may be read with what lies beside them.
  POLYPHASE_BLOCK bool sum(const SquareTaps& taps, const S* image, int64_t channels, float* out, int64_t stride) {
    if constexpr (kFloats) {
      if (way_ == kSmallPlanes) return small_.sum(taps, image, channels, out, stride);
    }
    const S* const further = image + further_row(taps.first[0]);
    if (taps.count == kTile && windows_.hold(taps.first)) {
      windows_.prefetch(further, channels, taps.first);
      return windows_.sum(taps, image, channels, out, stride);
    }
    if (way_ == kPlanes) {
      if (kPlanesArePrefetched && taps.count == kTile) prefetch_planes_right(further, strides_.channel, channels, taps.first);
      return sum_plane_squares(taps, image, strides_.y, strides_.channel, channels, out, stride);
    }
    if (taps.count == kTile) prefetch_right<(kBytes ? 4 : kPrefetchedPixel)>(further, taps.first);
    if constexpr (!kBytes) {
      return sum_pixel_squares(taps, image, strides_.y, channels_, out, stride);
    } else {
      if (channels_ == 2) sum_byte_squares<2>(taps, image, strides_.y, out, stride);
      if (channels_ == 3) sum_byte_squares<3>(taps, image, strides_.y, out, stride);
      if (channels_ == 4) sum_byte_squares<4>(taps, image, strides_.y, out, stride);
      return true;
    }
  }

  // Many channels side by side are summed as vectors, elsewhere.
  static Way way_of(const WarpCall& call) {
    const ImageStrides& s = call.image_strides;
    const bool interleaved = call.channels > 1 && s.channel == 1, many = interleaved && call.channels > 4;
    if (kFloats && !interleaved && SmallPlanes::hold(call)) return kSmallPlanes;
    if (!kDoubles && !interleaved && s.x == 1) return kPlanes;
    if (!kDoubles && interleaved && !many && s.x == call.channels) return kPixels;
    return kBytes || many ? kNone : kApart;
  }

  // From the first tap to the last element that is read, which is beyond the taps: that must be the image's too.
  static int64_t last_first(const WarpCall& call, Way way) {
    if (way == kSmallPlanes) return last_of(call, way, 2);
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
    return down ? strides_.y : 0;
  }

  Way way_;
  int channels_;
  const ImageStrides strides_;
  int32_t latest_ = 0;  // the first tap of the tile before
  SmallPlanes small_;
  WindowTiles<S> windows_;
  SquareFinder<V> finder_;
};

#endif

}  // namespace polyphase
