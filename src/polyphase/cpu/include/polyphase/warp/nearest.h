// Nearest tiles of images: elements of four bytes, as bits; planes, and pixels of any number of channels.
//
// A tile that cannot be done here is done by arrays (taps.h, sample.h): `sample` then returns false.
#pragma once

#include "polyphase/core/standard.h"
#include "polyphase/core/unroll.h"
#include "polyphase/warp/eights.h"
#include "polyphase/warp/pixels.h"
#include "polyphase/warp/positions.h"
#include "polyphase/warp/sample.h"

namespace polyphase {

// By quick gathers a tile takes so little time that prefetching would be noticed.
#if defined(__AVX512VBMI__)
constexpr bool kNearestIsPrefetched = false;
#else
constexpr bool kNearestIsPrefetched = true;
#endif

#if defined(__AVX2__)

template <class Prologue>
class NearestTiles {
 public:
  using S = typename Prologue::From;
  using Lanes = Vec<float>;
  using Index = Lanes::Index;
  static constexpr bool kExists = sizeof(S) == 4 && Prologue::kIdentity;

  NearestTiles(const WarpCall& call, const PixelAxis<float>& x, const PixelAxis<float>& y)
      : pixels_(call.channels > 1 && call.image_strides.channel == 1),
        x_stride_(static_cast<int32_t>(call.image_strides.x)),
        y_stride_(static_cast<int32_t>(call.image_strides.y)),
        channel_stride_(call.image_strides.channel),
        x_end_(x.last),
        y_end_(y.last),
        x_last_(static_cast<int32_t>(call.in_size[2] - 1)),
        y_last_(static_cast<int32_t>(call.in_size[1] - 1)),
        padding_(call.padding) {
    // What is read beyond a pixel must be the image's too.
    const int64_t read = pixels_ ? (call.channels + 3) / 4 * 4 : 1;
    const int64_t size = (call.in_size[1] - 1) * call.image_strides.y + (call.in_size[2] - 1) * call.image_strides.x +
                         (pixels_ ? call.channels : 1);
    last_first_ = size - read;
  }

  bool can() const { return padding_ != kReflection && last_first_ >= 0; }

  // As `InsideTiles` has it.
  template <class EachBlock>
  POLYPHASE_BLOCK bool sample(const EachBlock& each_block, [[maybe_unused]] int count, const S* image, int64_t channels, S* out, int64_t stride) const {
    const float* from = reinterpret_cast<const float*>(image);
    float* to = reinterpret_cast<float*>(out);
#if defined(__AVX512VBMI__)
    gather(each_block, count, from, channels, to, stride);
    return true;
#else
    NearestTaps taps;
    taps.count = count;
    Index furthest = Index();
    Lanes::Mask touch = Lanes::Mask();
    each_block([&](int i, const Lanes* x, const Lanes* y) __attribute__((always_inline)) {
      repeat<kSideBySide>([&](auto k) __attribute__((always_inline)) {
        const Places at = places(x[k], y[k]);
        furthest = Lanes::greater(furthest, at.place);
        touch = Lanes::either(touch, at.inside);
        Lanes::store_index(at.place, taps.first + i + Lanes::kLanes * k);
        Lanes::store_index(Lanes::bits(at.inside), taps.inside + i + Lanes::kLanes * k);
      });
    });
    if (!Lanes::any(touch)) return store_zeros(channels, to, stride);
    if (!Lanes::all(Lanes::within(furthest, static_cast<int32_t>(last_first_)))) return false;
    if (pixels_) {
      if (count == kTile) prefetch_right<2>(from, taps.first);
      pick_pixels(taps, from, channels, to, stride);
    } else {
      if (count == kTile) prefetch_planes_right(from, channel_stride_, channels, taps.first);
      pick_planes(taps, from, channel_stride_, channels, to, stride);
    }
    return true;
#endif
  }

 private:
  struct Places {
    Index place;  // 0 for one outside
    Lanes::Mask inside;
  };
  // A position too great for an integer, or NaN, becomes the least integer, which lies outside.
  POLYPHASE_BLOCK Places places(Lanes x, Lanes y) const {
    if (padding_ == kBorder) {
      x = x.clamped(Lanes::broadcast(x_end_));
      y = y.clamped(Lanes::broadcast(y_end_));
    }
    const Index column = Lanes::nearest(x), row = Lanes::nearest(y);
    const Lanes::Mask inside = Lanes::both(Lanes::within(column, x_last_), Lanes::within(row, y_last_));
    return {Lanes::kept(Lanes::sum(Lanes::times(column, x_stride_), Lanes::times(row, y_stride_)), inside), inside};
  }

#if defined(__AVX512VBMI__)
  // All blocks are done together, without arrays: for each there is little to compute and much to wait for.
  template <class EachBlock>
  POLYPHASE_BLOCK void gather(const EachBlock& each_block, int count, const float* plane, int64_t channels, float* out,
                              int64_t stride) const {
    constexpr int kBlocks = kSideBySide;
    static_assert(kBlocks * Lanes::kLanes == kTile, "all blocks of a tile");
    Places at[kBlocks];
    each_block([&](int, const Lanes* x, const Lanes* y) __attribute__((always_inline)) {
      repeat<kBlocks>([&](auto b) __attribute__((always_inline)) { at[b] = places(x[b], y[b]); });
    });
    if (count > Lanes::kLanes) return gather<kBlocks>(at, plane, channels, out, stride);
    gather<1>(at, plane, channels, out, stride);
  }

  template <int kBlocks>
  POLYPHASE_BLOCK void gather(const Places* at, const float* plane, int64_t channels, float* out, int64_t stride) const {
    int64_t c = 0;
    for (; channel_stride_ == 1 && c + 2 <= channels; c += 2, plane += 2, out += 2 * stride) {
      repeat<kBlocks>([&](auto b) __attribute__((always_inline)) {
        const Lanes::Pair pair = Lanes::gather_pairs(plane, at[b].place);
        pair.first.where(at[b].inside).store(out + b * Lanes::kLanes);
        pair.second.where(at[b].inside).store(out + stride + b * Lanes::kLanes);
      });
    }
    for (; c < channels; ++c, plane += channel_stride_, out += stride) {
      repeat<kBlocks>([&](auto b) __attribute__((always_inline)) {
        Lanes::gather(plane, at[b].place, at[b].inside).store(out + b * Lanes::kLanes);
      });
    }
  }
#endif

  bool pixels_;
  int32_t x_stride_, y_stride_;
  int64_t channel_stride_;
  float x_end_, y_end_;  // of positions
  int32_t x_last_, y_last_;
  int64_t padding_;
  int64_t last_first_;  // no pixel may lie behind it
};

#endif

}  // namespace polyphase
