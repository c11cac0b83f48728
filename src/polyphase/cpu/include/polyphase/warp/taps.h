// From positions to taps: which pixels, with which weights, by the rules of padding.
//
// A tap outside the image has offset 0, which can be read, and a weight of 0, or NaN where the position is no number.
#pragma once

#include "polyphase/warp/positions.h"

namespace polyphase {

// The taps of a tile along one axis.
template <class P, int kTaps>
struct AxisTaps {
  alignas(64) int32_t offset[kTaps][kTile];  // in elements
  alignas(64) P weight[kTaps][kTile];
  alignas(64) P slope[kTaps][kTile];     // of the weight, by position; only where asked for
  alignas(64) int32_t touched[kTile];    // some tap lies inside: 0 or 1
  alignas(64) int32_t inside[kTile];     // all taps lie inside, one pixel after the other: 0 or 1
};

// ---- padding: a position outside becomes one inside

template <class P>
inline void pad(P* positions, const PixelAxis<P>& axis, int64_t padding) {
  if (padding == kBorder) {
    for (int i = 0; i < kTile; ++i) positions[i] = clamped(positions[i], axis);
  } else if (padding == kReflection) {
    for (int i = 0; i < kTile; ++i) positions[i] = reflected(positions[i], axis);
  }
}

// The slope of what `pad` does to a position, as eager has it: at the very border there is none.
template <class P>
inline void pad_slope(const P* positions, const PixelAxis<P>& axis, int64_t padding, P* slope) {
  if (padding == kZeros) {
    for (int i = 0; i < kTile; ++i) slope[i] = 1;
  } else if (padding == kBorder) {
    for (int i = 0; i < kTile; ++i) slope[i] = clamped_slope(positions[i], axis);
  } else {
    for (int i = 0; i < kTile; ++i) slope[i] = reflected_slope(positions[i], axis);
  }
}

// ---- taps

template <class P>
inline void make_taps(Linear, TileOf<P>& positions, const PixelAxis<P>& axis, int64_t padding, int32_t stride,
                      bool slopes, AxisTaps<P, 2>& taps) {
  if (slopes) {
    pad_slope(positions.at, axis, padding, taps.slope[1]);
  }
  pad(positions.at, axis, padding);
  for (int i = 0; i < kTile; ++i) {
    const P first = floor(positions.at[i]), second = first + 1;
    const P fraction = positions.at[i] - first;
    const int32_t in_first = lies_inside(first, axis), in_second = lies_inside(second, axis);
    taps.offset[0][i] = offset_of(first, in_first, stride);
    taps.offset[1][i] = offset_of(second, in_second, stride);
    taps.weight[0][i] = (1 - fraction) * static_cast<P>(in_first);
    taps.weight[1][i] = fraction * static_cast<P>(in_second);
    taps.touched[i] = in_first | in_second;
    taps.inside[i] = in_first & in_second;
  }
  if (!slopes) return;
  for (int i = 0; i < kTile; ++i) {
    const P first = floor(positions.at[i]);
    taps.slope[0][i] = -taps.slope[1][i] * static_cast<P>(lies_inside(first, axis));
    taps.slope[1][i] *= static_cast<P>(lies_inside(first + 1, axis));
  }
}

// Tap k of pixel i, at a whole place. Its weight and slope stand there already; outside the image they become 0.
template <class P, int kTaps>
POLYPHASE_BLOCK int32_t place_tap(AxisTaps<P, kTaps>& taps, int k, int i, P place, const PixelAxis<P>& axis,
                                  int32_t stride, bool slopes) {
  const int32_t inside = lies_inside(place, axis);
  taps.offset[k][i] = offset_of(place, inside, stride);
  taps.weight[k][i] *= static_cast<P>(inside);
  if (slopes) taps.slope[k][i] *= static_cast<P>(inside);
  return inside;
}

// Padding moves each tap, not the position.
template <class P>
inline void make_taps(Cubic, TileOf<P>& positions, const PixelAxis<P>& axis, int64_t padding, int32_t stride,
                      bool slopes, AxisTaps<P, 4>& taps) {
  TileOf<P> first;
  for (int i = 0; i < kTile; ++i) {
    const P left = floor(positions.at[i]), x = positions.at[i] - left;
    first.at[i] = left - 1;
    taps.weight[0][i] = cubic_far(x + 1);
    taps.weight[1][i] = cubic_near(x);
    taps.weight[2][i] = cubic_near(1 - x);
    taps.weight[3][i] = cubic_far(2 - x);
    taps.inside[i] = (left >= 1) & (left + 2 <= axis.last);  // only where no tap is padded: those that are may be no neighbours
  }
  if (slopes) {
    for (int i = 0; i < kTile; ++i) {
      const P x = positions.at[i] - floor(positions.at[i]);
      taps.slope[0][i] = cubic_far_slope(x + 1);
      taps.slope[1][i] = cubic_near_slope(x);
      taps.slope[2][i] = -cubic_near_slope(1 - x);
      taps.slope[3][i] = -cubic_far_slope(2 - x);
    }
  }
  if (padding == kZeros && !slopes) {
    for (int i = 0; i < kTile; ++i) {
      const P place = first.at[i];
      taps.touched[i] = place_tap(taps, 0, i, place, axis, stride, false) | place_tap(taps, 1, i, place + 1, axis, stride, false) |
                        place_tap(taps, 2, i, place + 2, axis, stride, false) | place_tap(taps, 3, i, place + 3, axis, stride, false);
    }
    return;
  }
  for (int i = 0; i < kTile; ++i) taps.touched[i] = 0;
  for (int k = 0; k < 4; ++k) {
    TileOf<P> places;
    for (int i = 0; i < kTile; ++i) places.at[i] = first.at[i] + static_cast<P>(k);
    pad(places.at, axis, padding);
    for (int i = 0; i < kTile; ++i) taps.touched[i] |= place_tap(taps, k, i, places.at[i], axis, stride, slopes);
  }
}

// Taps that lie inside, one pixel after the other: the first one's offset, and all weights.
template <class P>
inline void make_inner_taps(Linear, const P* positions, int32_t stride, AxisTaps<P, 2>& taps) {
  for (int i = 0; i < kTile; ++i) {
    const P first = floor(positions[i]), fraction = positions[i] - first;
    taps.offset[0][i] = static_cast<int32_t>(first) * stride;
    taps.weight[0][i] = 1 - fraction;
    taps.weight[1][i] = fraction;
  }
}
template <class P>
inline void make_inner_taps(Cubic, const P* positions, int32_t stride, AxisTaps<P, 4>& taps) {
  for (int i = 0; i < kTile; ++i) {
    const P left = floor(positions[i]), x = positions[i] - left;
    taps.offset[0][i] = (static_cast<int32_t>(left) + Cubic::kFirst) * stride;
    taps.weight[0][i] = cubic_far(x + 1);
    taps.weight[1][i] = cubic_near(x);
    taps.weight[2][i] = cubic_near(1 - x);
    taps.weight[3][i] = cubic_far(2 - x);
  }
}

// Whether all taps of all positions lie inside. Padding changes nothing there.
template <class Filter, class P>
inline bool all_inside(const P* positions, const PixelAxis<P>& axis) {
  using Lanes = Vec<P>;
  const Lanes least = Lanes::broadcast(-Filter::kFirst);
  const Lanes most = Lanes::broadcast(axis.last - static_cast<P>(Filter::kTaps - 1 + Filter::kFirst));
  bool inside = true;
  for (int i = 0; i < kTile; i += Lanes::kLanes) inside &= Lanes::load(positions + i).lies_between(least, most);
  return inside;
}

inline int32_t stride_of(const ImageStrides& strides, int axis) {
  return static_cast<int32_t>(axis == 0 ? strides.x : axis == 1 ? strides.y : strides.z);
}

// The taps of a tile along all axes: 0 is x. `make` is given the positions along each, which it may change, and says
// whether there is anything to be sampled: a tap that touches the image, or a position that is no number.
template <class Filter, class P, int kAxes>
struct WarpTaps {
  static constexpr int kPerAxis = Filter::kTaps;
  static constexpr int kCount = kAxes == 2 ? kPerAxis * kPerAxis : kPerAxis * kPerAxis * kPerAxis;

  AxisTaps<P, kPerAxis> axes[kAxes];
  // All taps of the tile lie inside, one pixel after the other along each axis. Then of the axes there are only the
  // first taps' offsets, and the weights.
  bool inner = false;
  int32_t stride[kAxes];
  alignas(64) int32_t touched[kTile];  // some tap lies inside: 0 or 1
  // All combinations of the axes' taps, once they are asked for.
  alignas(64) int32_t offset[kCount][kTile];
  alignas(64) P weight[kCount][kTile];
  bool combined = false;

  template <class Axes>
  bool make(TileOf<P> (&positions)[kAxes], const Axes& image, int64_t padding, const ImageStrides& strides, bool slopes) {
    combined = false;
    inner = !slopes;
    for (int a = 0; a < kAxes; ++a) {
      stride[a] = stride_of(strides, a);
      inner = inner && all_inside<Filter>(positions[a].at, image.axis(a));
    }
    if (inner) {
      for (int a = 0; a < kAxes; ++a) make_inner_taps(Filter(), positions[a].at, stride[a], axes[a]);
      return true;
    }
    for (int a = 0; a < kAxes; ++a) {
      make_taps(Filter(), positions[a], image.axis(a), padding, stride[a], slopes, axes[a]);
    }
    int32_t any = 0;
    for (int i = 0; i < kTile; ++i) {
      touched[i] = axes[0].touched[i] & axes[1].touched[i] & axes[kAxes - 1].touched[i];
      any |= touched[i];
    }
    if (any != 0) return true;
    for (int i = 0; i < kTile; ++i) any |= of_nothing(i) != of_nothing(i);
    return any != 0;
  }

  // The tap of each axis that makes up tap k.
  static constexpr int of_axis(int k, int axis) {
    return axis == 0 ? k % kPerAxis : axis == 1 ? k / kPerAxis % kPerAxis : k / (kPerAxis * kPerAxis) % kPerAxis;
  }

  void combine() {
    if (combined) return;
    combined = true;
    combine_weights();
    const auto &x = axes[0], &y = axes[1], &z = axes[kAxes - 1];
    for (int k = 0; k < kCount; ++k) {
      const int i_x = of_axis(k, 0), i_y = of_axis(k, 1), i_z = of_axis(k, 2);
      // Along each axis tap i, or, of inner taps, the first and as many pixels on.
      const int from_x = inner ? 0 : i_x, from_y = inner ? 0 : i_y, from_z = inner ? 0 : i_z;
      const int32_t on = !inner ? 0 : i_x * stride[0] + i_y * stride[1] + (kAxes == 3 ? i_z * stride[kAxes - 1] : 0);
      for (int i = 0; i < kTile; ++i) {
        offset[k][i] = x.offset[from_x][i] + y.offset[from_y][i] + (kAxes == 3 ? z.offset[from_z][i] : 0) + on;
      }
    }
  }

  void combine_weights() {
    const auto &x = axes[0], &y = axes[1], &z = axes[kAxes - 1];
    for (int k = 0; k < kCount; ++k) {
      const P *of_x = x.weight[of_axis(k, 0)], *of_y = y.weight[of_axis(k, 1)], *of_z = z.weight[of_axis(k, 2)];
      for (int i = 0; i < kTile; ++i) {
        const P across = of_y[i] * of_x[i];
        weight[k][i] = kAxes == 3 ? of_z[i] * across : across;
      }
    }
  }

  // The sum at pixel i, which no tap touches: 0, or NaN where its position is no number.
  P of_nothing(int i) const { return axes[0].weight[0][i] * axes[1].weight[0][i] * axes[kAxes - 1].weight[0][i] * 0; }

  // Where tap k of pixel i lies along an axis.
  int32_t place(int axis, int k, int i) const {
    return inner ? axes[axis].offset[0][i] + k * stride[axis] : axes[axis].offset[k][i];
  }

  // Whether pixel i's taps along x lie inside, one pixel after the other.
  bool are_neighbours(int i) const { return inner || axes[0].inside[i] != 0; }

  // Whether all taps of pixels i to i + 3 lie inside.
  bool four_inside(int i) const {
    int32_t result = 1;
    for (int a = 0; a < kAxes; ++a) {
      const int32_t* inside = axes[a].inside + i;
      result &= inside[0] & inside[1] & inside[2] & inside[3];
    }
    return result != 0;
  }

  // What no offset of a tap is greater than.
  int32_t furthest() const {
    int32_t result = 0;
    for (int a = 0; a < kAxes; ++a) {
      alignas(64) int32_t most[kTile];
      for (int i = 0; i < kTile; ++i) most[i] = axes[a].offset[0][i];
      for (int k = 1; k < (inner ? 1 : kPerAxis); ++k) {
        for (int i = 0; i < kTile; ++i) most[i] = axes[a].offset[k][i] > most[i] ? axes[a].offset[k][i] : most[i];
      }
      int32_t of_axis = 0;
      for (int i = 0; i < kTile; ++i) of_axis = most[i] > of_axis ? most[i] : of_axis;
      result += of_axis + (inner ? (kPerAxis - 1) * stride[a] : 0);
    }
    return result;
  }
};

// One tap, of weight 1 or none.
template <class P, int kAxes>
struct WarpTaps<Nearest, P, kAxes> {
  static constexpr int kCount = 1;

  bool inner = false;  // all lie inside
  alignas(64) int32_t touched[kTile];
  alignas(64) int32_t offset[1][kTile];
  alignas(64) P weight[1][kTile];  // once it is asked for

  template <class Axes>
  bool make(TileOf<P> (&positions)[kAxes], const Axes& image, int64_t padding, const ImageStrides& strides, bool) {
    inner = true;
    for (int a = 0; a < kAxes; ++a) inner = inner && all_inside<Nearest>(positions[a].at, image.axis(a));
    if (inner) {
      make_inner(positions, strides);
      return true;
    }
    int32_t any = 0;
    for (int a = 0; a < kAxes; ++a) {
      P* at = positions[a].at;
      const PixelAxis<P>& axis = image.axis(a);
      const int32_t stride = stride_of(strides, a);
      pad(at, axis, padding);
      any = 0;
      for (int i = 0; i < kTile; ++i) {
        const P place = round_half_even(at[i]);
        const int32_t inside = lies_inside(place, axis);
        const int32_t here = offset_of(place, inside, stride);
        offset[0][i] = a == 0 ? here : offset[0][i] + here;
        touched[i] = a == 0 ? inside : touched[i] & inside;
        any |= touched[i];
      }
    }
    return any != 0;
  }

  void make_inner(const TileOf<P> (&positions)[kAxes], const ImageStrides& strides) {
    const int32_t x_stride = stride_of(strides, 0), y_stride = stride_of(strides, 1), z_stride = stride_of(strides, 2);
    const P *x = positions[0].at, *y = positions[1].at, *z = positions[kAxes - 1].at;
    for (int i = 0; i < kTile; ++i) {
      const int32_t plane = static_cast<int32_t>(round_half_even(y[i])) * y_stride +
                            static_cast<int32_t>(round_half_even(x[i])) * x_stride;
      offset[0][i] = kAxes == 3 ? static_cast<int32_t>(round_half_even(z[i])) * z_stride + plane : plane;
      touched[i] = 1;
    }
  }

  void combine() {
    for (int i = 0; i < kTile; ++i) weight[0][i] = static_cast<P>(touched[i]);
  }
};

// out[i] = from[offset[i]] for a tile. The compiler would not use gathers, which it takes to be slow.
template <class S>
inline void gather(const S* from, const int32_t* offset, S* out) {
#if defined(__AVX2__)
  if constexpr (sizeof(S) == 4 || sizeof(S) == 8) {
    using Element = Conditional<sizeof(S) == 4, float, double>;  // as bits
    using Lanes = Vec<Element>;
    for (int b = 0; b < kTile; b += Lanes::kLanes) {
      const typename Lanes::Index index = Lanes::load_index(offset + b);
      Lanes::gather(reinterpret_cast<const Element*>(from), index).store(reinterpret_cast<Element*>(out + b));
    }
    return;
  }
#endif
  for (int i = 0; i < kTile; ++i) out[i] = from[offset[i]];
}

}  // namespace polyphase
