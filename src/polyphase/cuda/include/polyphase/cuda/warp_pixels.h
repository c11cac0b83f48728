// The pixels of a thread: made at once where all have their taps at hand, or one by one, by the rules of padding.
#pragma once

#include "polyphase/cuda/warp_reads.h"

namespace polyphase {

// A pixel, and where its output is collected.
struct OwnPixel : OutputPixel {
  int collected;
};

// Where a pixel's channel is stored, and what its arithmetic reads besides.
template <class Kernel>
struct PixelTarget {
  using Store = typename Kernel::Store;
  using To = typename Kernel::To;
  using Collected = typename Kernel::template Aslant<false>;

  To* at;
  int64_t tensors[at_least_one(kTensors)];

  PixelTarget(const TilePlace<Kernel>& place, int64_t c, const OwnPixel& pixel)
      : at(Kernel::kSlanted > 0 ? place.collected + (static_cast<int>(c - place.first) * Collected::kPixels + pixel.collected)
                    : element(place.target(c), offset_of(place.call.target_strides, pixel))) {
    for (int t = 0; t < kTensors; ++t) {
      const ImageStrides& s = place.call.tensor_strides[t];
      tensors[t] = image_offset(s, place.n, c) + offset_of(s, pixel);
    }
  }

  void store(const WarpCall& call, int64_t c, const typename Kernel::Value& value) {
    *at = Store::apply(value, call, c, tensors);
  }
  void next(const WarpCall& call) {
    at += Kernel::kSlanted > 0 ? Collected::kPixels : call.target_strides.channel;
    for (int t = 0; t < kTensors; ++t) tensors[t] += call.tensor_strides[t].channel;
  }

 private:
  static auto offset_of(const ImageStrides& s, const OutputPixel& pixel) {
    return offset_in<Kernel::kAxes, typename Kernel::Offset>(s, pixel);
  }
};

// Of a tile, the pixels of column x, if they do not lie aslant; and of the channels from `first` up to `end`. kSteep: as the
// tile's slant is.
template <class Kernel, bool kSteep>
struct ThreadPixels {
  using Load = typename Kernel::Load;
  using P = typename Kernel::P;
  using From = typename Kernel::From;
  using Value = typename Kernel::Value;
  using Row = typename Kernel::Row;
  using Threads = typename Kernel::Threads;
  using Taps = typename Kernel::Taps;
  using Target = PixelTarget<Kernel>;
  using Place = TilePlace<Kernel>;

  const Place& place;
  const WarpCall& call;
  const BlockTile<Kernel>& tile;
  int64_t n, first, end;
  int32_t x;
  typename Kernel::Positions positions;

  ThreadPixels(const Place& of, int64_t from, int64_t to, int32_t column)
      : place(of), call(of.call), tile(of.tile), n(of.n), first(from), end(to), x(column), positions(call, tile, n) {}

  // The pixels from `row` on; whether all could be made.
  template <class Source>
  bool inner_outputs(const Source& source, Row row) const {
    constexpr int kGroup = Source::kChannelsAtOnce, kPixels = Kernel::kPixels;
    const Row rows = row_count<Kernel::kAxes>(call);
    OwnPixel pixels[kPixels];
    P at[kPixels][Kernel::kAxes];
    const bool all_exist = Kernel::kSlanted > 0 || row + (kPixels - 1) * Threads::kRows < rows;
    bool inside = all_exist;
#pragma unroll
    for (int p = 0; p < kPixels; ++p) {
      pixels[p] = own(row, p);
      positions.find(pixels[p], at[p]);
      inside = inside & source.has(at[p]);
    }
    if (!inside) {
      bool outside = all_exist & (call.padding == kZeros);
#pragma unroll
      for (int p = 0; p < kPixels; ++p) outside = outside & source.misses(at[p]);
      if (!outside) return false;
#pragma unroll
      for (int p = 0; p < kPixels; ++p) output_outside(pixels[p]);
      return true;
    }
    InnerTaps<typename Kernel::Filter, P> taps[kPixels][Kernel::kAxes];
    decltype(source.start(taps[0])) start[kPixels];
#pragma unroll
    for (int p = 0; p < kPixels; ++p) {
#pragma unroll
      for (int a = 0; a < Kernel::kAxes; ++a) taps[p][a].make(at[p][a]);
      start[p] = source.start(taps[p]);
    }
    P spoilt = 0;
    for (int64_t c = first; c < end; c += kGroup) {
      From read[kPixels][kGroup][Kernel::kCount];
#pragma unroll
      for (int p = 0; p < kPixels; ++p) source.fetch(c, start[p], read[p]);
#pragma unroll
      for (int p = 0; p < kPixels; ++p) {
        Target target(place, c, pixels[p]);
#pragma unroll
        for (int t = 0; t < kGroup; ++t) {
          const auto value_of = [&](int k) { return Load::apply(read[p][t][k], call, c + t); };
          const Value value = tap_sum<Kernel>(taps[p], start[p].turned, value_of);
          if constexpr (Kernel::kWeighted) spoilt = multiply_add(value, P(0), spoilt);
          target.store(call, c + t, inner_filled(value, c + t));
          target.next(call);
        }
      }
    }
    return spoilt == 0;
  }

  // From `row` on, as many as there are.
  void outputs_by_rules(Row row) const {
    read_again();
#pragma unroll 1
    for (int p = 0; p < Kernel::kPixels; ++p) {
      if (Kernel::kSlanted > 0 || row + p * Threads::kRows < row_count<Kernel::kAxes>(call)) output_by_rules(own(row, p));
    }
  }

  // Of a pixel that has this share of its weights inside the image.
  Value outer_filled(const Value& value, P share, int64_t c) const {
    if constexpr (Kernel::kFill == kFillNone) {
      return value;
    } else if constexpr (Kernel::kWeighted) {
      return filled(value, share, fill_of(c), Kernel::kFill);
    } else {
      return share != 0 ? value : fill_of(c);
    }
  }

 private:
  // Pixel p from `row` on. One that is not there is as the last one of its row or column; aslant, it is made, and not stored.
  OwnPixel own(Row row, int p) const {
    const Row last = row_count<Kernel::kAxes>(call) - 1;
    if constexpr (Kernel::kSlanted > 0) {
      using Aslant = typename Kernel::template Aslant<kSteep>;
      const auto at = Aslant::spot(tile.slant, static_cast<int>(row - place.row) + p * Threads::kRows, x - place.x);
      const OutputPixel pixel = {0, min(place.row + at.row, last),
                                 min(place.x + at.column, static_cast<int32_t>(call.out_size[2]) - 1)};
      return {pixel, Aslant::place(at)};
    } else {
      return {output_pixel<Kernel::kAxes>(call, min<Row>(row + p * Threads::kRows, last), x), 0};
    }
  }

  void output_outside(const OwnPixel& pixel) const {
    Target target(place, first, pixel);
#pragma unroll 1
    for (int64_t c = first; c < end; ++c, target.next(call)) target.store(call, c, outer_filled(Value{}, P(0), c));
  }

  // Taps of weight 0 are not read by the map: their values need not be finite.
  void output_by_rules(const OwnPixel& pixel) const {
    // Channels that are read at once: a warp waits for those of its lanes that are at an edge.
    constexpr int kRuled = Kernel::kTogether * Kernel::kCount <= 16 ? Kernel::kTogether : 1;
    Target target(place, first, pixel);
    Taps taps;
    taps.make(positions, pixel, call.image_strides);
    const From* from = place.image(first);
    const auto share = Kernel::kFill == kFillNone ? P(1) : share_of(taps, pixel);
#pragma unroll 1
    for (int64_t c = first; c < end; c += kRuled, from += kRuled * call.image_strides.channel) {
      From read[kRuled][Kernel::kCount] = {};
#pragma unroll
      for (int t = 0; t < kRuled; ++t) {
#pragma unroll
        for (int k = 0; k < Kernel::kCount; ++k) {
          if (taps.weight(k) != 0) read[t][k] = fetched(from + t * call.image_strides.channel + taps.offset(k));
        }
      }
#pragma unroll
      for (int t = 0; t < kRuled; ++t) {
        const auto value_of = [&](int k) { return taps.weight(k) != 0 ? Load::apply(read[t][k], call, c + t) : Value{}; };
        target.store(call, c + t, outer_filled(tap_sum<Kernel>(taps.axes, false, value_of), share, c + t));
        target.next(call);
      }
    }
  }

  // How much of a pixel lies inside the image; of the nearest and with a hard edge 0 or 1.
  P share_of(const Taps& taps, const OutputPixel& pixel) const {
    if constexpr (!Kernel::kWeighted || Kernel::kFill != kFillEdge) return taps.share();
    P at[Kernel::kAxes];
    positions.find(pixel, at);
    bool inside = true;
#pragma unroll
    for (int a = 0; a < Kernel::kAxes; ++a) inside = inside & lies_in_pixel(at[a], tile.axes[a]);
    return static_cast<P>(inside);
  }

  Value fill_of(int64_t c) const { return fetched(static_cast<const Value*>(call.fill) + c * call.fill_step); }

  // What lies inside, with all its taps.
  Value inner_filled(const Value& value, int64_t c) const {
    if constexpr (Kernel::kWeighted && Kernel::kFill == kFillBlend) return filled(value, P(1), fill_of(c), Kernel::kFill);
    return value;
  }
};

}  // namespace polyphase
