// What lies outside the image, for a tile at a time: a colour, by one of three rules.
#pragma once

#include <cstring>

#include "polyphase/core/standard.h"
#include "polyphase/warp/taps.h"

namespace polyphase {

#if defined(POLYPHASE_WARPS_IN_REGISTERS)

// Whether all taps lie inside the image, of a tile whose positions come a few vectors at a time. NaN lies nowhere.
template <class Filter, class EachBlock, class Axes>
POLYPHASE_BLOCK bool tile_lies_inside(const EachBlock& each_block, const Axes& image) {
  using Lanes = Vec<float>;
  constexpr float kBehind = Filter::kTaps - 1 + Filter::kFirst;
  const Lanes least = Lanes::broadcast(-Filter::kFirst);
  const Lanes most_x = Lanes::broadcast(image.axis(0).last - kBehind), most_y = Lanes::broadcast(image.axis(1).last - kBehind);
  Lanes::Mask inside = Lanes::within(Lanes::Index(), 0);
  each_block([&](int, const Lanes* x, const Lanes* y) __attribute__((always_inline)) {
    for (int k = 0; k < kSideBySide; ++k) {
      inside = Lanes::both(inside, Lanes::both(x[k].between(least, most_x), y[k].between(least, most_y)));
    }
  });
  return Lanes::all(inside);
}

#endif

// Asked only where the call has a fill. V: the type of values while they are sampled. Where they are weighted, it is that of weights.
template <class V, class Filter, class P, int kAxes>
class TileFill {
 public:
  static constexpr bool kWeighted = Filter::kTaps > 1;

  explicit TileFill(const WarpCall& call) : call_(call) {}

  // Whether also pixels are rounded anew whose taps all lie inside.
  bool changes_inner() const { return kWeighted && call_.fill_rule == kFillBlend; }

  // Before taps are made, which may change positions. Says whether anything lies inside that a hard edge leaves.
  template <class Axes>
  POLYPHASE_ROW_LOOP bool enter(const TileOf<P> (&positions)[kAxes], const Axes& image) {
    if (!kWeighted || call_.fill_rule != kFillEdge) return true;
    bool any = false;
    for (int i = 0; i < kTile; ++i) {
      bool inside = true;
      for (int a = 0; a < kAxes; ++a) inside &= lies_in_pixel(positions[a].at[i], image.axis(a));
      share_.at[i] = static_cast<P>(inside);
      any |= inside;
    }
    return any;
  }

  // Once taps are made.
  template <class Taps>
  POLYPHASE_ROW_LOOP void weigh(const Taps& taps) {
    inner_ = taps.inner;
    if constexpr (kWeighted) {
      if (inner_ || call_.fill_rule == kFillEdge) return;
      for (int i = 0; i < kTile; ++i) share_.at[i] = 1;
      for (int a = 0; a < kAxes; ++a) {
        const auto& axis = taps.axes[a];
        for (int i = 0; i < kTile; ++i) {
          P sum = axis.weight[0][i];
          for (int k = 1; k < Filter::kTaps; ++k) sum += axis.weight[k][i];
          share_.at[i] *= axis.inside[i] ? P(1) : sum;  // a sum of rounded weights need not be 1
        }
      }
    } else {
      for (int i = 0; i < kTile; ++i) touched_[i] = taps.touched[i];
    }
  }

  // Channel c of the tile, which was sampled.
  POLYPHASE_ROW_LOOP void apply(int64_t c, V* row) const {
    if (inner_) return apply_inner(c, row);
    const V fill = of_channel(c);
    if constexpr (kWeighted) {
      const int64_t rule = call_.fill_rule;
      if (rule == kFillBlend) {
        for (int i = 0; i < kTile; ++i) row[i] = filled(row[i], share_.at[i], fill, kFillBlend);
      } else if (rule == kFillConstant) {
        for (int i = 0; i < kTile; ++i) row[i] = filled(row[i], share_.at[i], fill, kFillConstant);
      } else {
        for (int i = 0; i < kTile; ++i) row[i] = filled(row[i], share_.at[i], fill, kFillEdge);
      }
    } else {
      for (int i = 0; i < kTile; ++i) row[i] = touched_[i] ? row[i] : fill;
    }
  }

  // Where all taps lie inside.
  POLYPHASE_ROW_LOOP void apply_inner(int64_t c, V* row) const {
    if constexpr (kWeighted) {
      if (!changes_inner()) return;
      const V fill = of_channel(c);
      for (int i = 0; i < kTile; ++i) row[i] = (row[i] - fill) + fill;
    }
  }

  // Channel c of a tile that nothing touches.
  POLYPHASE_ROW_LOOP void apply_outside(int64_t c, V* row) const {
    const V fill = of_channel(c);
    for (int i = 0; i < kTile; ++i) row[i] = fill;
  }

 private:
  V of_channel(int64_t c) const {
    V result;
    std::memcpy(&result, call_.fill + c * call_.fill_stride, sizeof(V));
    return result;
  }

  const WarpCall& call_;
  bool inner_ = false;  // all taps of the tile lie inside
  TileOf<P> share_;     // how much of a pixel lies inside; with a hard edge 0 or 1
  alignas(64) int32_t touched_[kTile];
};

}  // namespace polyphase
