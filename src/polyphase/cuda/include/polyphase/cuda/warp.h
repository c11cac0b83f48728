// Warps: a thread makes a few pixels of a tile, and their channels a few at a time.
#pragma once

#include "polyphase/cuda/vectors.h"
#include "polyphase/cuda/warp_taps.h"

namespace polyphase {

// By the cache that is only read from: what is written meanwhile is never what is read.
template <class T>
inline T fetched(const T* from) {
#ifdef __CUDACC__
  if constexpr (sizeof(T) == 16) {
    return __builtin_bit_cast(T, __ldg(reinterpret_cast<const uint4*>(from)));
  } else if constexpr (sizeof(T) == 8) {
    return __builtin_bit_cast(T, __ldg(reinterpret_cast<const unsigned long long*>(from)));
  } else if constexpr (sizeof(T) == 4) {
    return __builtin_bit_cast(T, __ldg(reinterpret_cast<const unsigned int*>(from)));
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

// How the channels of a pixel lie that are fetched together: apart, side by side, or as one vector.
enum Channels { kInPlanes, kInPixels, kInVectors };

// kFar: the elements of a plane are counted in 64 bits. kTogether: channels that are fetched together, of which every chunk has a multiple.
// kPixels: a thread's, one below the other, as many rows apart as a block has threads.
template <class Load, class Store, class Filter, class G, class P, int kAxes, bool kFar, int kTogether, int kChannels,
          int kPixels, int kWide, int kAcross, int kThreads>
struct Warp {
  using From = typename Load::From;
  using Offset = Conditional<kFar, int64_t, int32_t>;
  using Value = typename Load::To;
  using To = typename Store::To;
  using Threads = ThreadTile<kWide, kAcross, kThreads>;
  using Tile = WarpTile<P, kAxes>;
  using Row = RowNumber<kAxes>;
  using Taps = PixelTaps<Filter, P, kAxes, Offset, false>;
  static constexpr bool kWeighted = Filter::kTaps > 1;
  using Positions = PixelPositions<G, P, kAxes, kWeighted>;

  static void run(const WarpCall& call, const Block& block) {
    auto& tile = *reinterpret_cast<Tile*>(block.shared());
    each_part(block, call.strips, call.batch * call.chunks, [&](int64_t strip, int64_t part) {
      const Divided at = call.chunks == 1 ? Divided{part, 0} : divided(part, call.chunks);
      const int64_t n = at.quotient;
      const Row row = static_cast<Row>(strip) * (Threads::kRows * kPixels);
      const int32_t x = block.place().x * Threads::kColumns;
      block.each_thread([&](int thread) {
        if (thread < kAxes) tile.template enter<G>(call, n, output_pixel<kAxes>(call, row, x), thread);
      });
      block.each_thread([&](int thread) {
        const int32_t column = x + Threads::column(thread);
        const Row own = row + Threads::row(thread);
        if (column < call.out_size[2] && own < row_count<kAxes>(call)) {
          outputs(call, tile, n, at.remainder * call.chunk, own, column);
        }
      });
    });
  }

 private:
  // Of the chunk of channels from c on.
  static void outputs(const WarpCall& call, const Tile& tile, int64_t n, int64_t c, Row row, int32_t x) {
    const Positions positions(call, tile, n);
    const Row rows = row_count<kAxes>(call);
    const int64_t first = c, end = min(c + call.chunk, call.channels);
    OutputPixel pixels[kPixels];
    Taps taps[kPixels];
#pragma unroll
    for (int p = 0; p < kPixels; ++p) {
      pixels[p] = output_pixel<kAxes>(call, p == 0 ? row : min(row + p * Threads::kRows, rows - 1), x);
      taps[p].make(positions, pixels[p], call.image_strides);
    }
    const From* image = static_cast<const From*>(call.source) + n * call.image_strides.batch + c * call.image_strides.channel;
    P spoilt = 0;
    for (; c < end; c += kTogether, image += kTogether * call.image_strides.channel) {
      From read[kPixels][kTogether][Taps::kCount];
#pragma unroll
      for (int p = 0; p < kPixels; ++p) fetch(image, call.image_strides.channel, taps[p], read[p]);
#pragma unroll
      for (int p = 0; p < kPixels; ++p) {
        Target target(call, n, c, pixels[p]);
#pragma unroll
        for (int t = 0; t < kTogether; ++t) {
          const Value value = sum(call, taps[p], read[p][t], c + t);
          if constexpr (kWeighted) spoilt = multiply_add(value, P(0), spoilt);
          if (p == 0 || row + p * Threads::kRows < rows) target.store(call, c + t, value);
          target.next(call);
        }
      }
    }
    if constexpr (kWeighted) {
#pragma unroll 1
      for (int p = 0; spoilt != 0 && p < kPixels && row + p * Threads::kRows < rows; ++p) {
        outputs_carefully(call, tile, n, first, row + p * Threads::kRows, x);
      }
    }
  }

  // Without taps of weight 0, which are not read by the map: their values need not be finite.
  static POLYPHASE_SELDOM void outputs_carefully(const WarpCall& call, const Tile& tile, int64_t n, int64_t c, Row row,
                                                 int32_t x) {
    const OutputPixel pixel = output_pixel<kAxes>(call, row, x);
    const Positions positions(call, tile, n);
    const int64_t end = min(c + call.chunk, call.channels);
    Taps taps;
    taps.make(positions, pixel, call.image_strides);
    Target target(call, n, c, pixel);
#pragma unroll 1
    for (; c < end; ++c) {
      const ImageStrides& s = call.image_strides;
      const From* plane = static_cast<const From*>(call.source) + n * s.batch + c * s.channel;
      Value value{};
#pragma unroll
      for (int k = 0; k < Taps::kCount; ++k) {
        const P weight = taps.weight(k);
        if (weight != 0) value = multiply_add(weight, Load::apply(plane[taps.offset(k)], call, c), value);
      }
      target.store(call, c, value);
      target.next(call);
    }
  }

  // Where a pixel's channel is stored, and what its arithmetic reads besides.
  struct Target {
    To* at;
    int64_t tensors[at_least_one(kTensors)];

    Target(const WarpCall& call, int64_t n, int64_t c, const OutputPixel& pixel)
        : at(static_cast<To*>(call.target) + offset_in<kAxes>(call.target_strides, n, pixel) + c * call.target_strides.channel) {
      for (int t = 0; t < kTensors; ++t) {
        const ImageStrides& s = call.tensor_strides[t];
        tensors[t] = offset_in<kAxes>(s, n, pixel) + c * s.channel;
      }
    }
    void store(const WarpCall& call, int64_t c, const Value& value) { *at = Store::apply(value, call, c, tensors); }
    void next(const WarpCall& call) {
      at += call.target_strides.channel;
      for (int t = 0; t < kTensors; ++t) tensors[t] += call.tensor_strides[t].channel;
    }
  };

  static void fetch(const From* image, int64_t channel_stride, const Taps& taps, From (&read)[kTogether][Taps::kCount]) {
    if constexpr (kChannels == kInPlanes) {
#pragma unroll
      for (int t = 0; t < kTogether; ++t, image += channel_stride) {
#pragma unroll
        for (int k = 0; k < Taps::kCount; ++k) read[t][k] = fetched(image + taps.offset(k));
      }
    } else {
#pragma unroll
      for (int k = 0; k < Taps::kCount; ++k) {
        const From* pixel = image + taps.offset(k);
        if constexpr (kChannels == kInVectors) {
          const auto values = fetched(reinterpret_cast<const Vector<From, kTogether>*>(pixel));
#pragma unroll
          for (int t = 0; t < kTogether; ++t) read[t][k] = values.items[t];
        } else {
#pragma unroll
          for (int t = 0; t < kTogether; ++t) read[t][k] = fetched(pixel + t);
        }
      }
    }
  }

  static Value sum(const WarpCall& call, const Taps& taps, const From (&read)[Taps::kCount], int64_t channel) {
    if constexpr (!kWeighted) {
      return taps.weight(0) != 0 ? Load::apply(read[0], call, channel) : Value{};
    } else {
      constexpr int kTaps = Taps::kPerAxis;
      Value result = 0;
#pragma unroll
      for (int z = 0; z < Taps::kDeep; ++z) {
        Value of_plane = 0;
#pragma unroll
        for (int y = 0; y < kTaps; ++y) {
          Value of_row = 0;
#pragma unroll
          for (int x = 0; x < kTaps; ++x) {
            const Value value = Load::apply(read[(z * kTaps + y) * kTaps + x], call, channel);
            of_row = multiply_add(taps.axes[0].weight[x], value, of_row);
          }
          of_plane = multiply_add(taps.axes[1].weight[y], of_row, of_plane);
        }
        result = kAxes == 3 ? multiply_add(taps.axes[kAxes - 1].weight[z], of_plane, result) : of_plane;
      }
      return result;
    }
  }
};

}  // namespace polyphase
