// Where the output pixels of a thread lie in the image, and their taps along every axis.
#pragma once

#include "polyphase/core/standard.h"
#include "polyphase/cuda/block.h"
#include "polyphase/cuda/places.h"
#include "polyphase/cuda/warp_call.h"

namespace polyphase {

// Of one image of the batch.
struct OutputPixel {
  int32_t z, y, x;
};

// Counts rows over (z, y).
template <int kAxes>
using RowNumber = Conditional<kAxes == 2, int32_t, int64_t>;

template <int kAxes>
inline RowNumber<kAxes> row_count(const WarpCall& call) {
  return static_cast<RowNumber<kAxes>>(kAxes == 2 ? call.out_size[1] : call.out_size[0] * call.out_size[1]);
}

template <int kAxes>
inline OutputPixel output_pixel(const WarpCall& call, RowNumber<kAxes> row, int32_t x) {
  if (kAxes == 2) return {0, static_cast<int32_t>(row), x};
  const Divided at = divided(row, call.out_size[1]);
  return {static_cast<int32_t>(at.quotient), static_cast<int32_t>(at.remainder), x};
}

// Of a pixel in image n.
template <int kAxes>
inline int64_t offset_in(const ImageStrides& strides, int64_t n, const OutputPixel& at) {
  const int64_t plane = n * strides.batch + at.y * strides.y + at.x * strides.x;
  return kAxes == 3 ? at.z * strides.z + plane : plane;
}

// Which pixel of a tile is a thread's. A warp has kWide pixels side by side and 32 / kWide rows: of an image that is turned,
// a compact patch lies in fewer lines of memory than a row. A block has kAcross warps side by side.
template <int kWide, int kAcross, int kThreads>
struct ThreadTile {
  static constexpr int kTall = 32 / kWide;
  static constexpr int kColumns = kWide * kAcross, kRows = kThreads / 32 / kAcross * kTall;

  static int column(int thread) { return thread / 32 % kAcross * kWide + thread % kWide; }
  static int row(int thread) { return thread / 32 / kAcross * kTall + thread % 32 / kWide; }
};

// What all threads of a tile know, in shared memory: one thread for each axis finds it. 0 is x.
//
// A matrix leads from an output pixel to a position in double up to the tile's first, which is start + rest: `rest` is what
// rounding took from `start`. What is added to it within a tile is so small that one rounding is left.
template <class P, int kAxes>
struct WarpTile {
  OutputPixel first;
  PixelAxis<P> axes[kAxes];
  P start[kAxes], rest[kAxes];
  P step[kAxes][kAxes];  // step[a][b]: along image axis a, for an output pixel along b

  template <class G>
  void enter(const WarpCall& call, int64_t n, const OutputPixel& pixel, int a) {
    axes[a] = PixelAxis<P>(call.in_size[2 - a], call.align_corners != 0);
    if (a == 0) first = pixel;
    if (!call.affine) return;
    const CoordinateStrides& s = call.coordinate_strides;
    const G* matrix = static_cast<const G*>(call.coordinates) + n * s.batch + a * s.y;
    const double half = PixelAxis<double>(call.in_size[2 - a], call.align_corners != 0).half;
    const int32_t at[3] = {pixel.x, pixel.y, pixel.z};
    double coordinate = 1 + static_cast<double>(matrix[kAxes * s.x]);
#pragma unroll
    for (int b = 0; b < kAxes; ++b) {
      const double factor = static_cast<double>(matrix[b * s.x]);
      coordinate += factor * (call.base_first[2 - b] + at[b] * call.base_step[2 - b]);
      step[a][b] = static_cast<P>(factor * half * call.base_step[2 - b]);
    }
    const double position = coordinate * half - (call.align_corners ? 0 : 0.5);
    start[a] = static_cast<P>(position);
    const P lost = static_cast<P>(position - static_cast<double>(start[a]));
    rest[a] = lost == lost ? lost : P(0);
  }
};

// The positions of output pixels in image n, unpadded. kSettled: as the CPU's kernels have it (warp/positions.h).
template <class G, class P, int kAxes, bool kSettled>
struct PixelPositions {
  const WarpCall& call;
  const WarpTile<P, kAxes>& tile;
  const G* coordinates;

  PixelPositions(const WarpCall& of, const WarpTile<P, kAxes>& entered, int64_t n)
      : call(of), tile(entered), coordinates(static_cast<const G*>(of.coordinates) + n * of.coordinate_strides.batch) {}

  void find(const OutputPixel& pixel, P (&out)[kAxes]) const {
    if (call.affine) {
      const auto x = static_cast<P>(pixel.x - tile.first.x), y = static_cast<P>(pixel.y - tile.first.y);
#pragma unroll
      for (int a = 0; a < kAxes; ++a) {
        P sum = multiply_add(y, tile.step[a][1], multiply_add(x, tile.step[a][0], tile.rest[a]));
        if (kAxes == 3) sum = multiply_add(static_cast<P>(pixel.z - tile.first.z), tile.step[a][kAxes - 1], sum);
        out[a] = tile.start[a] + sum;
      }
    } else {
      const CoordinateStrides& s = call.coordinate_strides;
      const G* from = coordinates + pixel.y * s.y + pixel.x * s.x + (kAxes == 3 ? pixel.z * s.z : 0);
#pragma unroll
      for (int a = 0; a < kAxes; ++a) {
        out[a] = multiply_add(static_cast<P>(from[a * s.component]) + 1, tile.axes[a].half, tile.axes[a].offset);
      }
    }
    if (kSettled) settle(out);
  }

 private:
  void settle(P (&positions)[kAxes]) const {
    bool close = true;
#pragma unroll
    for (int a = 0; a < kAxes; ++a) close = close & (abs(positions[a] - nearest_half(positions[a])) <= tile.axes[a].near);
#pragma unroll
    for (int a = 0; a < kAxes; ++a) positions[a] = close ? nearest_half(positions[a]) : positions[a];
  }
};

template <class P>
inline P padded(P position, const PixelAxis<P>& axis, int64_t padding) {
  if (padding == kBorder) return clamped(position, axis);
  return padding == kReflection ? reflected(position, axis) : position;
}

// The taps of a pixel along one axis. One that lies outside has offset 0, which can be read, and a weight of 0, or NaN where
// the position is no number. kSlopes: of the weights too, by position.
template <class P, class Offset, int kTaps, bool kSlopes>
struct LineTaps {
  Offset offset[kTaps];  // in elements
  P weight[kTaps];
  P slope[kSlopes ? kTaps : 1];

  void place(int k, P at, const PixelAxis<P>& axis, Offset stride) {
    const int32_t inside = lies_inside(at, axis);
    offset[k] = offset_of(at, inside, stride);
    weight[k] *= static_cast<P>(inside);
    if (kSlopes) slope[k] *= static_cast<P>(inside);
  }

  void make(Linear, P position, const PixelAxis<P>& axis, int64_t padding, Offset stride) {
    if (kSlopes) {
      const P moved = padding == kZeros ? P(1) : padding == kBorder ? clamped_slope(position, axis) : reflected_slope(position, axis);
      slope[0] = -moved;
      slope[1] = moved;
    }
    position = padded(position, axis, padding);
    const P first = floor(position), fraction = position - first;
    weight[0] = 1 - fraction;
    weight[1] = fraction;
    place(0, first, axis, stride);
    place(1, first + 1, axis, stride);
  }

  // Padding moves each tap, not the position.
  void make(Cubic, P position, const PixelAxis<P>& axis, int64_t padding, Offset stride) {
    const P left = floor(position), x = position - left;
    weight[0] = cubic_far(x + 1);
    weight[1] = cubic_near(x);
    weight[2] = cubic_near(1 - x);
    weight[3] = cubic_far(2 - x);
    if (kSlopes) {
      slope[0] = cubic_far_slope(x + 1);
      slope[1] = cubic_near_slope(x);
      slope[2] = -cubic_near_slope(1 - x);
      slope[3] = -cubic_far_slope(2 - x);
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) place(k, padded(left + static_cast<P>(k - 1), axis, padding), axis, stride);
  }

  void make(Nearest, P position, const PixelAxis<P>& axis, int64_t padding, Offset stride) {
    weight[0] = 1;
    place(0, round_half_even(padded(position, axis, padding)), axis, stride);
  }
};

// The taps of a pixel along all axes: 0 is x.
template <class Filter, class P, int kAxes, class Offset, bool kSlopes>
struct PixelTaps {
  static constexpr int kPerAxis = Filter::kTaps;
  static constexpr int kDeep = kAxes == 3 ? kPerAxis : 1;  // taps along z
  static constexpr int kCount = kPerAxis * kPerAxis * kDeep;

  LineTaps<P, Offset, kPerAxis, kSlopes> axes[kAxes];

  template <class Positions>
  void make(const Positions& positions, const OutputPixel& pixel, const ImageStrides& strides) {
    P at[kAxes];
    positions.find(pixel, at);
#pragma unroll
    for (int a = 0; a < kAxes; ++a) {
      const auto stride = static_cast<Offset>(a == 0 ? strides.x : a == 1 ? strides.y : strides.z);
      axes[a].make(Filter(), at[a], positions.tile.axes[a], positions.call.padding, stride);
    }
  }

  // Tap k, counted along x, then y, then z.
  Offset offset(int k) const {
    const Offset plane = axes[1].offset[k / kPerAxis % kPerAxis] + axes[0].offset[k % kPerAxis];
    return kAxes == 3 ? axes[kAxes - 1].offset[k / (kPerAxis * kPerAxis)] + plane : plane;
  }
  P weight(int k) const {
    const P across = axes[1].weight[k / kPerAxis % kPerAxis] * axes[0].weight[k % kPerAxis];
    return kAxes == 3 ? axes[kAxes - 1].weight[k / (kPerAxis * kPerAxis)] * across : across;
  }
  // Of the weight, for a step along axis a.
  P slope(int k, int a) const {
    P product = 1;
#pragma unroll
    for (int b = 0; b < kAxes; ++b) {
      const int tap = b == 0 ? k % kPerAxis : b == 1 ? k / kPerAxis % kPerAxis : k / (kPerAxis * kPerAxis);
      product *= b == a ? axes[b].slope[tap] : axes[b].weight[tap];
    }
    return product;
  }
};

}  // namespace polyphase
