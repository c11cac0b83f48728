// The gradients of a warp: of the image, by adding to the pixels each output was made of; of the coordinates, by the slopes
// of the weights. A thread has a pixel of the output, and goes over its channels.
//
// A call's target is the output's gradient, its source the image. vectors[0]: the gradient of a grid; or, of a matrix or of a
// formula's entries, every block's share of it, which are added up in their order afterwards, and behind all shares the
// gradients of fields. vectors[1]: the `Largest` of every plane. tensors[0]: the image's gradient; the others are fields.
#pragma once

#include "polyphase/cuda/fixed_point.h"
#include "polyphase/cuda/warp_taps.h"

namespace polyphase {

// What is added to the image's gradient: nothing, floats, integers, or, to floats, only what is not finite.
enum Adding { kAddNothing, kAddFloats, kAddIntegers, kAddWhatIsNotFinite };

// kDense: image and gradient have the same strides. kTogether: channels that are fetched together, of which every chunk has a
// multiple.
template <class Load, class Store, class Filter, class G, class P, int kAxes, class Formula, bool kAffine, bool kFar,
          int kTogether, bool kDense, int kAdding, bool kOfCoordinates, int kWide, int kAcross, int kThreads>
struct WarpGradients {
  using From = typename Load::From;
  using Offset = Conditional<kFar, int64_t, int32_t>;
  using Threads = ThreadTile<kWide, kAcross, kThreads>;
  using Tile = WarpTile<P, kAxes>;
  using Row = RowNumber<kAxes>;
  using Taps = PixelTaps<Filter, P, kAxes, Offset, kOfCoordinates>;
  using Positions = PixelPositions<G, P, kAxes, Offset, kAffine, false, Formula>;
  static constexpr int kCount = Taps::kCount, kPerAxis = Taps::kPerAxis;
  static constexpr int kSums = Formula::kExists ? Formula::kEntries : kAffine ? kAxes * (kAxes + 1) : 0;

  static void run(const WarpCall& call, const Block& block) {
    auto& tile = *reinterpret_cast<Tile*>(block.shared());
    auto* sums = reinterpret_cast<double*>(block.shared() + kTileBytes);  // element (m, thread) at m * kThreads + thread
    each_part(block, call.strips, call.batch * call.chunks, [&](int64_t strip, int64_t part) {
      const Divided at = divided(part, call.chunks);
      const int64_t n = at.quotient, c = at.remainder * call.chunk;
      if (kAdding == kAddWhatIsNotFinite && !has_others(call, n, c)) return;
      const Row row = static_cast<Row>(strip) * Threads::kRows;
      const int32_t x = block.place().x * Threads::kColumns;
      block.each_thread([&](int thread) {
        if (thread >= kAxes) return;
        tile.template enter_axis<G>(call, thread);
        if (kAffine) tile.template enter_matrix<G>(call, n, output_pixel<kAxes>(call, row, x), thread);
      });
      block.each_thread([&](int thread) {
        const int32_t column = x + Threads::column(thread);
        const Row own = row + Threads::row(thread);
        P by_axis[kAxes] = {};
        OutputPixel pixel = {};
        if (column < call.out_size[2] && own < row_count<kAxes>(call)) {
          pixel = output_pixel<kAxes>(call, own, column);
          add_pixel(call, tile, n, c, pixel, by_axis);
          if (kOfCoordinates && !kAffine && !Formula::kExists) store(call, n, pixel, by_axis);
        }
        const bool exists = column < call.out_size[2] && own < row_count<kAxes>(call);
        if constexpr (kOfCoordinates && Formula::kExists) {
          through_formula(call, tile, n, pixel, exists, by_axis, sums + thread);
        } else if (kOfCoordinates && kAffine) {
          keep(call, pixel, by_axis, sums + thread);
        }
      });
      if (kOfCoordinates && kSums > 0) add_up(call, block, sums, (part * call.strips + strip) * call.tiles + block.place().x);
    });
  }

 private:
  static_assert(sizeof(Tile) <= kTileBytes);

  static bool has_others(const WarpCall& call, int64_t n, int64_t c) {
    bool found = false;
    for (int64_t end = min(c + call.chunk, call.channels); c < end; ++c) {
      found = found || static_cast<const Largest*>(call.vectors[1])[n * call.channels + c].others != 0;
    }
    return found;
  }

  // `taps` were made with strides of 1, so that their offsets are places along the axes; these are turned into elements here.
  static Offset offset_of_tap(const Taps& taps, const ImageStrides& s, int k) {
    const Offset plane = taps.axes[1].offset[k / kPerAxis % kPerAxis] * static_cast<Offset>(s.y) +
                         taps.axes[0].offset[k % kPerAxis] * static_cast<Offset>(s.x);
    return kAxes == 3 ? taps.axes[kAxes - 1].offset[k / (kPerAxis * kPerAxis)] * static_cast<Offset>(s.z) + plane : plane;
  }

  // Of the chunk of channels from c on; by_axis: the gradient of the pixel's coordinates.
  static void add_pixel(const WarpCall& call, const Tile& tile, int64_t n, int64_t c, const OutputPixel& pixel,
                        P (&by_axis)[kAxes]) {
    const int64_t first = c, end = min(c + call.chunk, call.channels);
    Taps taps;
    taps.make(Positions(call, tile, n), pixel, ImageStrides{0, 0, 1, 1, 1});
    Offset from[kCount], to[kCount];
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      from[k] = kOfCoordinates || kDense ? offset_of_tap(taps, call.image_strides, k) : 0;
      to[k] = kDense ? from[k] : offset_of_tap(taps, call.tensor_strides[0], k);
    }
    const ImageStrides& s = call.target_strides;
    const From* gradient = static_cast<const From*>(call.target) + n * s.batch + c * s.channel + offset_in<kAxes, Offset>(s, pixel);
    const From* image = static_cast<const From*>(call.source) + n * call.image_strides.batch + c * call.image_strides.channel;
    int64_t sums = n * call.tensor_strides[0].batch + c * call.tensor_strides[0].channel;
    for (; c < end; c += kTogether) {
      P given[kTogether];
      From read[kTogether][kOfCoordinates ? kCount : 1];
#pragma unroll
      for (int t = 0; t < kTogether; ++t, gradient += s.channel) given[t] = Load::apply(fetched(gradient), call, c + t);
      if constexpr (kOfCoordinates) {
#pragma unroll
        for (int t = 0; t < kTogether; ++t, image += call.image_strides.channel) {
#pragma unroll
          for (int k = 0; k < kCount; ++k) read[t][k] = fetched(image + from[k]);
        }
#pragma unroll
        for (int t = 0; t < kTogether; ++t) add_slopes(call, taps, read[t], given[t], by_axis);
      }
      if constexpr (kAdding != kAddNothing) {
#pragma unroll
        for (int t = 0; t < kTogether; ++t, sums += call.tensor_strides[0].channel) {
          add_to_image(call, taps, to, n * call.channels + c + t, sums, given[t]);
        }
      }
    }
    if constexpr (kOfCoordinates) {
#pragma unroll
      for (int a = 0; a < kAxes; ++a) by_axis[a] *= tile.axes[a].half;
      bool finite = true;
#pragma unroll
      for (int a = 0; a < kAxes; ++a) finite = finite && is_finite(by_axis[a]);
      if (!finite) {
        for (int a = 0; a < kAxes; ++a) by_axis[a] = careful_slope(call, tile, n, first, pixel, a);
      }
    }
  }

  static void add_to_image(const WarpCall& call, const Taps& taps, const Offset (&to)[kCount], int64_t plane, int64_t sums,
                           P gradient) {
    if constexpr (kAdding == kAddIntegers) {
      const FixedPoint fixed(call, plane);
      if (!is_finite(gradient)) return;
      auto* at = static_cast<int64_t*>(const_cast<void*>(call.tensors[0].known())) + sums;
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        const P weight = taps.weight(k);
        if (!(weight < 0 || weight > 0)) continue;
        const double share = static_cast<double>(weight * gradient) * fixed.scale, whole = round_half_even(share);
        add_to(at + to[k], static_cast<int64_t>(whole));
        if (sizeof(P) == 8) {
          int64_t* second = at + call.batch * call.tensor_strides[0].batch;
          add_to(second + to[k], static_cast<int64_t>(round_half_even((share - whole) * fixed.rest)));
        }
      }
    } else {
      if (kAdding == kAddWhatIsNotFinite && is_finite(gradient)) return;
      auto* at = static_cast<P*>(const_cast<void*>(call.tensors[0].known())) + sums;
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        const P weight = taps.weight(k);
        // Where the position is NaN, so is the weight, and nothing is added.
        if (weight < 0 || weight > 0) add_to(at + to[k], weight * gradient);
      }
    }
  }

  // by_axis[a] += gradient * the slope of the pixel's value along axis a.
  static void add_slopes(const WarpCall& call, const Taps& taps, const From (&read)[kCount], P gradient, P (&by_axis)[kAxes]) {
    P slope[kAxes] = {};
#pragma unroll
    for (int z = 0; z < Taps::kDeep; ++z) {
      P of_plane = 0, along_x = 0, along_y = 0;
#pragma unroll
      for (int y = 0; y < kPerAxis; ++y) {
        P of_row = 0, of_slopes = 0;
#pragma unroll
        for (int x = 0; x < kPerAxis; ++x) {
          const P value = Load::apply(read[(z * kPerAxis + y) * kPerAxis + x], call, 0);
          of_row = multiply_add(taps.axes[0].weight[x], value, of_row);
          of_slopes = multiply_add(taps.axes[0].slope[x], value, of_slopes);
        }
        of_plane = multiply_add(taps.axes[1].weight[y], of_row, of_plane);
        along_x = multiply_add(taps.axes[1].weight[y], of_slopes, along_x);
        along_y = multiply_add(taps.axes[1].slope[y], of_row, along_y);
      }
      const P deep = kAxes == 3 ? taps.axes[kAxes - 1].weight[z] : P(1);
      slope[0] = multiply_add(deep, along_x, slope[0]);
      slope[1] = multiply_add(deep, along_y, slope[1]);
      if (kAxes == 3) slope[kAxes - 1] = multiply_add(taps.axes[kAxes - 1].slope[z], of_plane, slope[kAxes - 1]);
    }
#pragma unroll
    for (int a = 0; a < kAxes; ++a) by_axis[a] = multiply_add(gradient, slope[a], by_axis[a]);
  }

  // by_axis[a] without the taps of slope 0, whose values may be infinite or NaN.
  static POLYPHASE_SELDOM P careful_slope(const WarpCall& call, const Tile& tile, int64_t n, int64_t c,
                                          const OutputPixel& pixel, int a) {
    const int64_t end = min(c + call.chunk, call.channels);
    Taps taps;
    taps.make(Positions(call, tile, n), pixel, call.image_strides);
    P sum = 0;
#pragma unroll 1
    for (; c < end; ++c) {
      const ImageStrides &s = call.target_strides, &of_image = call.image_strides;
      const From* of_target = static_cast<const From*>(call.target) + n * s.batch + c * s.channel;
      const P gradient = Load::apply(of_target[offset_in<kAxes, Offset>(s, pixel)], call, c);
      const From* plane = static_cast<const From*>(call.source) + n * of_image.batch + c * of_image.channel;
#pragma unroll 1
      for (int k = 0; k < kCount; ++k) {
        const P slope = taps.slope(k, a) * tile.axes[a].half;
        if (slope < 0 || slope > 0) sum += gradient * Load::apply(plane[taps.offset(k)], call, c) * slope;
      }
    }
    return sum;
  }

  // The gradient of a grid is dense, one pixel's axes after the other's.
  static void store(const WarpCall& call, int64_t n, const OutputPixel& pixel, const P (&by_axis)[kAxes]) {
    const int64_t row = (n * call.out_size[0] + pixel.z) * call.out_size[1] + pixel.y;
    P* at = static_cast<P*>(const_cast<void*>(call.vectors[0].known())) + (row * call.out_size[2] + pixel.x) * kAxes;
#pragma unroll
    for (int a = 0; a < kAxes; ++a) at[a] = by_axis[a];
  }

  // A thread's share of the gradient of a matrix, which has a row for each axis of the image, and a column for each axis of
  // the output and one for what is added.
  static void keep(const WarpCall& call, const OutputPixel& pixel, const P (&by_axis)[kAxes], double* sums) {
    const int32_t at[3] = {pixel.x, pixel.y, pixel.z};
#pragma unroll
    for (int a = 0; a < kAxes; ++a) {
#pragma unroll
      for (int b = 0; b <= kAxes; ++b) {
        const double base = b == kAxes ? 1 : call.base_first[2 - b % kAxes] + at[b % kAxes] * call.base_step[2 - b % kAxes];
        sums[(a * (kAxes + 1) + b) * kThreads] = static_cast<double>(by_axis[a]) * base;
      }
    }
  }

  // A thread's share of the gradients of entries; and those of fields, dense, one field after the other.
  static void through_formula(const WarpCall& call, const Tile& tile, int64_t n, const OutputPixel& pixel, bool exists,
                              const P (&by_axis)[kAxes], double* sums) {
    P shares[at_least_one(kSums + Formula::kFields)] = {};
    if (exists) Formula::gradients(Positions(call, tile, n).read(pixel), by_axis, shares);
#pragma unroll
    for (int e = 0; e < kSums; ++e) sums[e * kThreads] = static_cast<double>(shares[e]);
    if (!exists || Formula::kFields == 0) return;
    auto* const first = static_cast<double*>(const_cast<void*>(call.vectors[0].known()));
    P* const fields = reinterpret_cast<P*>(first + call.batch * call.chunks * call.strips * call.tiles * kSums);
    const int64_t pixels = call.out_size[0] * call.out_size[1] * call.out_size[2];
    const int64_t at = n * pixels + (pixel.z * call.out_size[1] + pixel.y) * call.out_size[2] + pixel.x;
#pragma unroll
    for (int f = 0; f < Formula::kFields; ++f) fields[f * call.batch * pixels + at] = shares[kSums + f];
  }

  static void add_up(const WarpCall& call, const Block& block, double* sums, int64_t share) {
    for (int half = kThreads / 2; half > 0; half /= 2) {
      block.each_thread([&](int thread) {
        for (int m = 0; thread < half && m < kSums; ++m) sums[m * kThreads + thread] += sums[m * kThreads + thread + half];
      });
    }
    block.each_thread([&](int thread) {
      auto* shares = static_cast<double*>(const_cast<void*>(call.vectors[0].known()));
      if (thread < kSums) shares[share * kSums + thread] = sums[thread * kThreads];
    });
  }
};

}  // namespace polyphase
