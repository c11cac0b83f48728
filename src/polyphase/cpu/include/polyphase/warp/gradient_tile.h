// What the gradients of a warp have in common: a tile's taps, and the gradient of its output.
#pragma once

#include "polyphase/core/rows.h"
#include "polyphase/core/standard.h"
#include "polyphase/warp/channels.h"
#include "polyphase/warp/cubic_rows.h"
#include "polyphase/warp/taps.h"
#include "polyphase/warp/widened.h"

namespace polyphase {

// Of a whole tile.
template <class T>
inline bool are_finite(const T* values) {
  int32_t finite = 1;
  for (int i = 0; i < kTile; ++i) finite &= values[i] - values[i] == 0;
  return finite != 0;
}

// A tile's taps and the gradient of its output. Load: from the image's dtype to V, which sums are made in.
template <class Load, class Filter, class G, class P, int kAxes, class Formula>
class GradientTile {
 public:
  using S = typename Load::From;
  using V = typename Load::To;
  using Taps = WarpTaps<Filter, P, kAxes>;
  static constexpr bool kRows = kAxes == 3 && Filter::kTaps == 4;

  explicit GradientTile(const WarpCall& call)
      : call_(call),
        x_stride_(given(call).row_stride()),
        walks_(call.is_points() && !given(call).are_one(call.planes_of_points())),
        positions(call),
        gradient_(static_cast<const S*>(call.target)) {}

  int64_t rows() const { return call_.out_size[0] * call_.out_size[1]; }

  // Row r of the output of image n.
  void enter_row(int64_t n, int64_t r) {
    z_ = r / call_.out_size[1];
    y_ = r % call_.out_size[1];
    positions.enter_image(n);
    row_ = gradient_ + n * call_.target_strides.batch + z_ * call_.target_strides.z + y_ * call_.target_strides.y;
  }

  void enter_tile(int64_t x, const ImageStrides& image, bool slopes) {
    x_ = x;
    count = static_cast<int>(min<int64_t>(kTile, call_.out_size[2] - x));
    TileOf<P> at[kAxes];
    positions.tile(z_, y_, x, count, at);
    if (walks_) {
      PointWalk walk(given(call_), x);
      for (int i = 0; i < count; ++i, walk.next()) walked_[i] = walk.offset();
    }
    taps.make(at, positions, call_.padding, image, slopes);
    if constexpr (!kRows) taps.combine();
  }

  // The gradient of channel c of the tile's output; 0 beyond its end.
  void load_gradient(int64_t c, V* out) const {
    alignas(64) S values[kTile] = {};
    const S* from = row_ + c * call_.target_strides.channel;
    if (walks_) {
      for (int i = 0; i < count; ++i) values[i] = from[walked_[i]];
    } else {
      from += x_ * x_stride_;
      for (int i = 0; i < count; ++i) values[i] = from[i * x_stride_];
    }
    load(values, out);
    for (int i = count; i < kTile; ++i) out[i] = 0;
  }

  // The gradient of `channels` channels from c on, those of a pixel side by side: pixel i from the result + i * stride on.
  const V* load_pixels(int64_t c, int64_t channels, int64_t* stride) {
    if constexpr (Load::kIdentity) {
      if (call_.target_strides.channel == 1 && !walks_) {
        *stride = x_stride_;
        return row_ + c + x_ * x_stride_;
      }
    }
    for (int64_t l = 0; l < channels; ++l) load_gradient(c + l, planes_ + l * kTile);
    turn(planes_, kTile, pixels_, kChunk, channels, kTile);
    *stride = kChunk;
    return pixels_;
  }
  static constexpr int64_t kChunk = 64;  // channels that are taken together

  static void load(const S* values, V* out) {
    if constexpr (Load::kIdentity) {
      for (int i = 0; i < kTile; ++i) out[i] = values[i];
    } else {
      Load::row(values, out, kTile, RowOperands());
    }
  }

 private:
  // Where the gradient that came in lies.
  static PointRows given(const WarpCall& call) {
    const ImageStrides& s = call.target_strides;
    return call.is_points() ? call.points_of(s.z, s.y, s.x) : PointRows{1, 2, 0, 0, s.x};
  }

  const WarpCall& call_;
  const int64_t x_stride_;  // of the gradient, from point to point of a row
  const bool walks_;        // it is one of points that do not lie as one row
  int64_t walked_[kTile];   // where they lie

 public:
  Positions<G, P, kAxes, false, Formula> positions;
  Taps taps;
  int count = 0;  // pixels

 private:
  const S* gradient_;
  const S* row_ = nullptr;
  int64_t z_ = 0, y_ = 0, x_ = 0;
  alignas(64) V planes_[kChunk * kTile], pixels_[kTile * kChunk];
};

}  // namespace polyphase
