// Where the output pixels of a thread lie in the image, and their taps along every axis.
#pragma once

#include "polyphase/core/standard.h"
#include "polyphase/cuda/block.h"
#include "polyphase/cuda/places.h"
#include "polyphase/cuda/warp_call.h"

namespace polyphase {

// A load through the read-only cache, for what no kernel writes while this one runs.
template <class T>
inline T fetched(const T* from) {
#ifdef __CUDACC__
  if constexpr (sizeof(T) == 16) {
    return __builtin_bit_cast(T, __ldg(reinterpret_cast<const uint4*>(from)));
  } else if constexpr (sizeof(T) == 8) {
    return __builtin_bit_cast(T, __ldg(reinterpret_cast<const unsigned long long*>(from)));
  } else if constexpr (sizeof(T) == 4) {
    // If it has to come from memory, all of its line comes: neighbours are read next. `volatile` keeps the load behind the
    // wait for earlier kernels (block.h).
    unsigned int word;
    asm volatile("ld.global.nc.L2::128B.u32 %0, [%1];" : "=r"(word) : "l"(from));
    return __builtin_bit_cast(T, word);
  } else if constexpr (sizeof(T) == 2) {
    return __builtin_bit_cast(T, __ldg(reinterpret_cast<const unsigned short*>(from)));
  } else if constexpr (sizeof(T) == 1) {
    return __builtin_bit_cast(T, __ldg(reinterpret_cast<const unsigned char*>(from)));
  } else {
    return *from;
  }
#else
  return *from;
#endif
}

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

// Where a pixel lies in its plane, in elements. Offset: an integer that all planes of the call have room in.
template <int kAxes, class Offset, class Strides>
inline Offset offset_in(const Strides& strides, const OutputPixel& at) {
  const Offset plane = at.y * static_cast<Offset>(strides.y) + at.x * static_cast<Offset>(strides.x);
  return kAxes == 3 ? at.z * static_cast<Offset>(strides.z) + plane : plane;
}

// An element of a plane, by its offset, which is not negative. Offsets of 32 bits are so small that bytes have room in 32 bits
// too (`warps.is_far`): then one instruction adds them to an address that all threads share.
template <class T>
inline T* element(T* plane, int64_t offset) {
  return plane + offset;
}
template <class T>
inline T* element(T* plane, int32_t offset) {
  const uint32_t bytes = static_cast<uint32_t>(offset) * static_cast<uint32_t>(sizeof(T));
  return (T*)((const char*)plane + bytes);
}

// Which pixel of a tile is a thread's. A warp has kWide pixels side by side and 32 / kWide rows: where an image is turned,
// what a compact patch of the output reads lies in fewer lines of memory than what a row reads. A block has kAcross warps side
// by side.
template <int kWide, int kAcross, int kThreads>
struct ThreadTile {
  static constexpr int kTall = 32 / kWide;
  static constexpr int kColumns = kWide * kAcross, kRows = kThreads / 32 / kAcross * kTall;

  // Threads are numbered without a sign, so that divisions are shifts.
  static int column(uint32_t thread) { return static_cast<int>(thread / 32 % kAcross * kWide + thread % kWide); }
  static int row(uint32_t thread) { return static_cast<int>(thread / 32 / kAcross * kTall + thread % 32 / kWide); }
};

// Pixels farther away than this need not be told apart. Floats hold all whole numbers up to it.
constexpr int32_t kMostPixels = 1 << 24;

// Along an axis of an image, from the first to the last.
struct PixelRange {
  int32_t first, last;

  int32_t count() const { return last - first + 1; }
};

constexpr int kTileBytes = 336;  // of shared memory, for a `WarpTile`, two addresses, a slant and flags

// What all threads of a tile know, in shared memory: for each axis one thread finds it. Axis 0 is x.
//
// By a matrix, the position of the tile's first pixel is computed in double, and kept as start + rest: `rest` is what was lost
// when `start` was rounded to P. Steps from there to other pixels of the tile are so small that a position is in effect
// rounded once.
template <class P, int kAxes>
struct WarpTile {
  OutputPixel first;
  PixelAxis<P> axes[kAxes];
  P start[kAxes], rest[kAxes];
  P step[kAxes][kAxes];  // step[a][b]: along image axis a, for an output pixel along b
  PixelRange reached[kAxes];

  // G: of the coordinates.
  template <class G>
  void enter_axis(const WarpCall& call, int a) {
    axes[a] = PixelAxis<P>(call.in_size[2 - a], call.align_corners != 0, sizeof(G) < 8);
  }

  // Where coordinates are matrices. `pixel`: the tile's first.
  template <class G>
  void enter_matrix(const WarpCall& call, int64_t n, const OutputPixel& pixel, int a) {
    if (a == 0) first = pixel;
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

  // By a matrix: the pixels of the image among which a tile of so many columns and rows has its taps; with `beyond`, those
  // outside the image too; all there are, where positions are NaN. It need not be exact: a tap that is not among them is read
  // from the image.
  template <class Filter>
  void reach(int a, int columns, int rows, bool beyond) {
    const P along_x = step[a][0] * static_cast<P>(columns - 1), along_y = step[a][1] * static_cast<P>(rows - 1);
    const P low = start[a] + (along_x < 0 ? along_x : P(0)) + (along_y < 0 ? along_y : P(0)) + P(Filter::kFirst);
    const P high = start[a] + (along_x > 0 ? along_x : P(0)) + (along_y > 0 ? along_y : P(0)) + P(Filter::kTaps + Filter::kFirst);
    const P least = beyond ? P(-kMostPixels) : P(0), most = beyond ? P(kMostPixels) : axes[a].last;
    const P first = low > least ? floor(low) : least, last = high < most ? floor(high) : most;
    reached[a] = {static_cast<int32_t>(first < most ? first : most), static_cast<int32_t>(last > least ? last : least)};
  }
};

// The positions of output pixels in image n, before padding. kSettled: one that is within rounding of a pixel, or of the middle
// between two, along all axes, is moved there, as by the CPU's kernels (warp/positions.h).
template <class G, class P, int kAxes, class Offset, bool kAffine, bool kSettled, class Formula>
struct PixelPositions {
  const WarpCall& call;
  const WarpTile<P, kAxes>& tile;
  const G* coordinates;
  int64_t n;
  P entries[at_least_one(Formula::kEntries)], numbers[at_least_one(Formula::kNumbers)];

  PixelPositions(const WarpCall& of, const WarpTile<P, kAxes>& entered, int64_t image)
      : call(of),
        tile(entered),
        coordinates(static_cast<const G*>(of.coordinates) + image * of.coordinate_strides.batch),
        n(image) {
#pragma unroll
    for (int i = 0; i < Formula::kEntries; ++i) {
      entries[i] = static_cast<P>(fetched(coordinates + i * call.coordinate_strides.component));
    }
#pragma unroll
    for (int i = 0; i < Formula::kNumbers; ++i) numbers[i] = static_cast<P>(call.numbers[i]);
  }

  // What a formula reads.
  struct Read {
    const PixelPositions& positions;
    const OutputPixel& pixel;

    template <int k>
    P entry() const { return positions.entries[k]; }
    template <int k>
    P number() const { return positions.numbers[k]; }
    template <int a>
    P place() const { return static_cast<P>(index<a>()); }
    template <int a>
    P base() const {
      const auto size = static_cast<int32_t>(positions.call.out_size[3 - kAxes + a]);
      const int32_t steps = positions.call.align_corners ? max(size - 1, 1) : size;
      return static_cast<P>(index<a>() - size + 1 + index<a>()) / static_cast<P>(steps);
    }
    template <int f>
    P field() const {
      constexpr int kPlace = Formula::kFirstField + f;
      const ImageStrides& s = positions.call.tensor_strides[kPlace];
      const G* of_image = static_cast<const G*>(positions.call.tensors[kPlace].known()) + positions.n * s.batch;
      return static_cast<P>(fetched(element(of_image, offset_in<kAxes, Offset>(s, pixel))));
    }

   private:
    template <int a>
    int32_t index() const {
      constexpr int kAlong = 3 - kAxes + a;
      return kAlong == 0 ? pixel.z : kAlong == 1 ? pixel.y : pixel.x;
    }
  };
  Read read(const OutputPixel& pixel) const { return {*this, pixel}; }

  void find(const OutputPixel& pixel, P (&out)[kAxes]) const {
    if constexpr (Formula::kExists) {
      Formula::coordinates(read(pixel), out);
#pragma unroll
      for (int a = 0; a < kAxes; ++a) out[a] = multiply_add(out[a] + 1, tile.axes[a].half, tile.axes[a].offset);
    } else if (kAffine) {
      const auto x = static_cast<P>(pixel.x - tile.first.x), y = static_cast<P>(pixel.y - tile.first.y);
#pragma unroll
      for (int a = 0; a < kAxes; ++a) {
        P sum = multiply_add(y, tile.step[a][1], multiply_add(x, tile.step[a][0], tile.rest[a]));
        if (kAxes == 3) sum = multiply_add(static_cast<P>(pixel.z - tile.first.z), tile.step[a][kAxes - 1], sum);
        out[a] = tile.start[a] + sum;
      }
    } else {
      const CoordinateStrides& s = call.coordinate_strides;
      const G* from = element(coordinates, offset_in<kAxes, Offset>(s, pixel));
#pragma unroll
      for (int a = 0; a < kAxes; ++a) {
        const G coordinate = fetched(from + a * static_cast<Offset>(s.component));
        out[a] = multiply_add(static_cast<P>(coordinate) + 1, tile.axes[a].half, tile.axes[a].offset);
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

// Reflecting divides: inlined into every tap, that would be half of a bicubic kernel's instructions. A position inside the
// image is left as it is, to the bit.
template <class P>
POLYPHASE_SELDOM P seldom_reflected(P position, const PixelAxis<P>& axis) {
  return lies_inside(position, axis) ? position : reflected(position, axis);
}

template <class P>
inline P padded(P position, const PixelAxis<P>& axis, int64_t padding) {
  if (padding == kBorder) return clamped(position, axis);
  return padding == kReflection ? seldom_reflected(position, axis) : position;
}

// Of a single tap. Without padding nothing is called; else a function is: inlined, it would be most of a bicubic kernel.
template <class P>
POLYPHASE_SELDOM P seldom_padded(P tap, const PixelAxis<P>& axis, int64_t padding) {
  return padded(tap, axis, padding);
}
template <class P>
inline P padded_tap(P tap, const PixelAxis<P>& axis, int64_t padding) {
  return padding == kZeros ? tap : seldom_padded(tap, axis, padding);
}

// The weights of taps by how far a position lies behind the pixel at or before it.
template <class P>
inline void weigh(Linear, P fraction, P (&weight)[2]) {
  weight[0] = 1 - fraction;
  weight[1] = fraction;
}
template <class P>
inline void weigh(Cubic, P fraction, P (&weight)[4]) {
  weight[0] = cubic_far(fraction + 1);
  weight[1] = cubic_near(fraction);
  weight[2] = cubic_near(1 - fraction);
  weight[3] = cubic_far(2 - fraction);
}

// The taps of a pixel along one axis where all of them can be read: neighbours, from `first` on.
template <class Filter, class P>
struct InnerTaps {
  int32_t first;
  P weight[Filter::kTaps];

  // Whether all taps lie among the pixels from `first` to `last`. Of NaN they do not.
  static bool exist(P position, P first, P last) {
    constexpr int kBehind = Filter::kTaps > 1 ? Filter::kTaps + Filter::kFirst - 1 : 1;
    return (position >= first - P(Filter::kFirst)) & (position < last - P(kBehind - 1));
  }

  // Whether all taps lie outside the image. In images so large that `last` is rounded, the answer may be no although they do.
  static bool miss(P position, P last) {
    constexpr int kBehind = Filter::kTaps + Filter::kFirst;
    return (position < P(-kBehind)) | (position > last + last * P(1.0 / (1 << 16)) + P(1 - Filter::kFirst));
  }

  void make(P position) {
    if constexpr (Filter::kTaps == 1) {
      first = static_cast<int32_t>(round_half_even(position));
    } else {
      const P before = floor(position);
      weigh(Filter(), position - before, weight);
      first = static_cast<int32_t>(before) + Filter::kFirst;
    }
  }
};

// The taps of a pixel along one axis, by the rules of padding. One that lies outside has offset 0, which can be read, and a
// weight of 0, or NaN where the position is NaN. kSlopes: with the derivatives of weights by the position.
template <class P, class Offset, int kTaps, bool kSlopes>
struct LineTaps {
  Offset offset[kTaps];  // in elements
  P weight[kTaps];
  P slope[kSlopes ? kTaps : 1];
  int32_t whole = 1;  // all taps lie inside

  void place(int k, P at, const PixelAxis<P>& axis, Offset stride) {
    const int32_t inside = lies_inside(at, axis);
    whole &= inside;
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
    weigh(Linear(), fraction, weight);
    place(0, first, axis, stride);
    place(1, first + 1, axis, stride);
  }

  // Padding moves each tap, not the position.
  void make(Cubic, P position, const PixelAxis<P>& axis, int64_t padding, Offset stride) {
    const P left = floor(position), x = position - left;
    weigh(Cubic(), x, weight);
    if (kSlopes) {
      slope[0] = cubic_far_slope(x + 1);
      slope[1] = cubic_near_slope(x);
      slope[2] = -cubic_near_slope(1 - x);
      slope[3] = -cubic_far_slope(2 - x);
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) place(k, padded_tap(left + static_cast<P>(k - 1), axis, padding), axis, stride);
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
  // How much of the pixel lies inside the image: exactly 1 where all taps do, though rounded weights may add up to a bit more
  // or less.
  P share() const {
    P product = 1;
#pragma unroll
    for (int a = 0; a < kAxes; ++a) {
      P sum = 0;
#pragma unroll
      for (int k = 0; k < kPerAxis; ++k) sum += axes[a].weight[k];
      product *= axes[a].whole ? P(1) : sum;
    }
    return product;
  }
  // The derivative of tap k's weight by the position along axis a.
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
