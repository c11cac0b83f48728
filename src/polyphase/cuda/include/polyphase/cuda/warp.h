// Warps: a thread makes a few pixels of a tile at once, and their channels a few at a time; then the pixels further down.
//
// Most pixels have all their taps inside the image. These are neighbours: a row of them is read from one address on. Where a
// thread has another pixel, or a sum that is not finite, its pixels are made one by one, by the rules of padding.
#pragma once

#include "polyphase/cuda/vectors.h"
#include "polyphase/cuda/warp_taps.h"

namespace polyphase {

// How the channels of a pixel lie that are fetched together: apart, side by side, or as one vector.
enum Channels { kInPlanes, kInPixels, kInVectors };

// kAffine: coordinates are matrices, else a grid. kFar: the elements of a plane are counted in 64 bits. kByRules: all pixels
// are made one by one. kStep: elements from a pixel to the next along x, 0 where the call says it. kTogether: channels that are
// fetched together, of which every chunk has a multiple. kPixels: a thread's, one below the other, as many rows apart as a
// block has threads.
template <class Load, class Store, class Filter, class G, class P, int kAxes, bool kAffine, bool kFar, bool kByRules, int kStep,
          int kTogether, int kChannels, int kPixels, int kWide, int kAcross, int kThreads>
struct Warp {
  using From = typename Load::From;
  using Offset = Conditional<kFar, int64_t, int32_t>;
  using Value = typename Load::To;
  using To = typename Store::To;
  using Threads = ThreadTile<kWide, kAcross, kThreads>;
  using Tile = WarpTile<P, kAxes>;
  using Row = RowNumber<kAxes>;
  using Taps = PixelTaps<Filter, P, kAxes, Offset, false>;
  static constexpr int kTaps = Taps::kPerAxis, kDeep = Taps::kDeep, kCount = Taps::kCount;
  static constexpr bool kWeighted = Filter::kTaps > 1;
  using Positions = PixelPositions<G, P, kAxes, Offset, kAffine, kWeighted>;

  static void run(const WarpCall& call, const Block& block) {
    auto& tile = *reinterpret_cast<Tile*>(block.shared());
    each_part(block, call.strips, call.batch * call.chunks, [&](int64_t strip, int64_t part) {
      const Divided at = call.chunks == 1 ? Divided{part, 0} : divided(part, call.chunks);
      const auto steps = static_cast<int32_t>(call.steps);
      const Row row = static_cast<Row>(strip) * (Threads::kRows * kPixels * steps);
      const int32_t x = block.place().x * Threads::kColumns;
      block.each_thread([&](int thread) {
        if (thread < kAxes) tile.template enter<G, kAffine>(call, at.quotient, output_pixel<kAxes>(call, row, x), thread);
      });
      block.each_thread([&](int thread) {
        const Part own(call, tile, at.quotient, at.remainder * call.chunk, x + Threads::column(thread));
        if (own.x >= call.out_size[2]) return;
#pragma unroll 1
        for (int32_t s = 0; s < steps; ++s) own.outputs(row + Threads::row(thread) + s * (Threads::kRows * kPixels));
      });
    });
  }

 private:
  // What is a thread's: pixels of column x in image n, a chunk of channels from `first` on.
  struct Part {
    const WarpCall& call;
    const Tile& tile;
    int64_t n, first, end;
    int32_t x;
    Positions positions;
    const From* image;

    Part(const WarpCall& of, const Tile& entered, int64_t image_number, int64_t channel, int32_t column)
        : call(of),
          tile(entered),
          n(image_number),
          first(channel),
          end(min(channel + of.chunk, of.channels)),
          x(column),
          positions(of, entered, n),
          image(static_cast<const From*>(of.source) + n * of.image_strides.batch + channel * of.image_strides.channel) {}

    // From `row` on, as many as there are.
    void outputs(Row row) const {
      if (!kByRules && inner_outputs(row)) return;
#pragma unroll 1
      for (int p = 0; p < kPixels; ++p) {
        if (row + p * Threads::kRows < row_count<kAxes>(call)) {
          output_by_rules(output_pixel<kAxes>(call, row + p * Threads::kRows, x));
        }
      }
    }

    // Whether all could be made.
    bool inner_outputs(Row row) const {
      const Row rows = row_count<kAxes>(call);
      OutputPixel pixels[kPixels];
      P at[kPixels][kAxes];
      bool inside = row + (kPixels - 1) * Threads::kRows < rows;
#pragma unroll
      for (int p = 0; p < kPixels; ++p) {
        pixels[p] = output_pixel<kAxes>(call, min<Row>(row + p * Threads::kRows, rows - 1), x);
        positions.find(pixels[p], at[p]);
#pragma unroll
        for (int a = 0; a < kAxes; ++a) inside = inside & InnerTaps<Filter, P>::exist(at[p][a], tile.axes[a]);
      }
      if (!inside) return false;
      InnerTaps<Filter, P> taps[kPixels][kAxes];
      Offset start[kPixels];
#pragma unroll
      for (int p = 0; p < kPixels; ++p) {
#pragma unroll
        for (int a = 0; a < kAxes; ++a) taps[p][a].make(at[p][a]);
        start[p] = taps[p][0].first * step() + taps[p][1].first * static_cast<Offset>(call.image_strides.y);
        if (kAxes == 3) start[p] += taps[p][kAxes - 1].first * static_cast<Offset>(call.image_strides.z);
      }
      P spoilt = 0;
      const From* from = image;
      for (int64_t c = first; c < end; c += kTogether, from += kTogether * call.image_strides.channel) {
        From read[kPixels][kTogether][kCount];
#pragma unroll
        for (int p = 0; p < kPixels; ++p) fetch(from, start[p], read[p]);
#pragma unroll
        for (int p = 0; p < kPixels; ++p) {
          Target target(call, n, c, pixels[p]);
#pragma unroll
          for (int t = 0; t < kTogether; ++t) {
            const Value value = sum(taps[p], [&](int k) { return Load::apply(read[p][t][k], call, c + t); });
            if constexpr (kWeighted) spoilt = multiply_add(value, P(0), spoilt);
            target.store(call, c + t, value);
            target.next(call);
          }
        }
      }
      return spoilt == 0;
    }

    // Taps of weight 0 are not read by the map: their values need not be finite.
    void output_by_rules(const OutputPixel& pixel) const {
      Taps taps;
      taps.make(positions, pixel, call.image_strides);
      Target target(call, n, first, pixel);
      const From* from = image;
#pragma unroll 1
      for (int64_t c = first; c < end; ++c, from += call.image_strides.channel) {
        From read[kCount] = {};
#pragma unroll
        for (int k = 0; k < kCount; ++k) {
          if (taps.weight(k) != 0) read[k] = fetched(from + taps.offset(k));
        }
        const auto value_of = [&](int k) { return taps.weight(k) != 0 ? Load::apply(read[k], call, c) : Value{}; };
        target.store(call, c, sum(taps.axes, value_of));
        target.next(call);
      }
    }

    // Of a pixel's taps, from the first on.
    void fetch(const From* from, Offset start, From (&read)[kTogether][kCount]) const {
      const ImageStrides& s = call.image_strides;
#pragma unroll
      for (int line = 0; line < kDeep * kTaps; ++line) {
        Offset offset = start + line % kTaps * static_cast<Offset>(s.y);
        if (kAxes == 3) offset += line / kTaps * static_cast<Offset>(s.z);
#pragma unroll
        for (int x = 0; x < kTaps; ++x) {
          const int k = line * kTaps + x;
          if constexpr (kChannels == kInVectors) {
            const auto values = fetched(reinterpret_cast<const Vector<From, kTogether>*>(from + offset + x * step()));
#pragma unroll
            for (int t = 0; t < kTogether; ++t) read[t][k] = values.items[t];
          } else {
#pragma unroll
            for (int t = 0; t < kTogether; ++t) {
              read[t][k] = fetched(from + t * (kChannels == kInPlanes ? s.channel : 1) + offset + x * step());
            }
          }
        }
      }
    }

    Offset step() const { return kStep > 0 ? kStep : static_cast<Offset>(call.image_strides.x); }
  };

  // Along x, then y, then z. value(k): of tap k.
  template <class AxisTaps, class Read>
  static Value sum(const AxisTaps (&taps)[kAxes], const Read& value) {
    if constexpr (!kWeighted) {
      return value(0);
    } else {
      Value result = 0;
#pragma unroll
      for (int z = 0; z < kDeep; ++z) {
        Value of_plane = 0;
#pragma unroll
        for (int y = 0; y < kTaps; ++y) {
          Value of_row = 0;
#pragma unroll
          for (int x = 0; x < kTaps; ++x) of_row = multiply_add(taps[0].weight[x], value((z * kTaps + y) * kTaps + x), of_row);
          of_plane = multiply_add(taps[1].weight[y], of_row, of_plane);
        }
        result = kAxes == 3 ? multiply_add(taps[kAxes - 1].weight[z], of_plane, result) : of_plane;
      }
      return result;
    }
  }

  // Where a pixel's channel is stored, and what its arithmetic reads besides.
  struct Target {
    To* at;
    int64_t tensors[at_least_one(kTensors)];

    Target(const WarpCall& call, int64_t n, int64_t c, const OutputPixel& pixel)
        : at(static_cast<To*>(call.target) + image_offset(call.target_strides, n, c) +
             offset_in<kAxes, Offset>(call.target_strides, pixel)) {
      for (int t = 0; t < kTensors; ++t) {
        const ImageStrides& s = call.tensor_strides[t];
        tensors[t] = image_offset(s, n, c) + offset_in<kAxes, Offset>(s, pixel);
      }
    }
    void store(const WarpCall& call, int64_t c, const Value& value) { *at = Store::apply(value, call, c, tensors); }
    void next(const WarpCall& call) {
      at += call.target_strides.channel;
      for (int t = 0; t < kTensors; ++t) tensors[t] += call.tensor_strides[t].channel;
    }
  };

  static int64_t image_offset(const ImageStrides& s, int64_t n, int64_t c) { return n * s.batch + c * s.channel; }
};

}  // namespace polyphase
