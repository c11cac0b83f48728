// Warps: a thread makes a few pixels of a tile at once, and their channels a few at a time; then the pixels further down.
//
// Most pixels have all their taps inside the image. These are neighbours: a row of them is read from one address on. Where a
// thread has another pixel, or a sum that is not finite, its pixels are made one by one, by the rules of padding.
//
// Where a matrix leads from a tile to a small part of the image, that part may be brought to shared memory first: there a
// load takes no longer for taps that lie in many rows. Or a warp's pixels lie aslant.
#pragma once

#include "polyphase/cuda/warp_pixels.h"
#include "polyphase/cuda/warp_stores.h"

namespace polyphase {

// kAffine: coordinates are matrices, else a grid. kFar: the elements of a plane are counted in 64 bits. kByRules: all pixels
// are made one by one. kOnce: a block has one tile, and images have kTogether channels. kSlanted: then, in how many steps a
// tile is made whose pixels lie aslant; 0 where they do not, and it is made in one. kFill: a FillRule. kStep: elements from a
// pixel to the next along x, 0 where the call says it. kTogether: channels that are fetched together, of which every chunk has
// a multiple; kChannels: of `Channels`, how they lie. kPixels: a thread's, one below the other, as many rows apart as a block
// has threads. kPitch and kBoxRows: of an `ImageBox`, 0 where there is none. What other parts of the kernel ask for has the
// same name, without the underscore.
template <class Load_, class Store_, class Filter_, class G_, class P_, int kAxes_, class Formula_, bool kAffine_, bool kFar,
          bool kByRules, bool kOnce, int kSlanted_, int kFill_, int kStep_, int kTogether_, int kChannels_, int kPixels_,
          int kWide, int kAcross, int kPitch, int kBoxRows_, int kThreads_>
struct Warp {
  using Load = Load_;
  using Store = Store_;
  using Filter = Filter_;
  using G = G_;  // of coordinates
  using P = P_;  // of positions
  using Formula = Formula_;
  static constexpr bool kAffine = kAffine_;
  static constexpr int kAxes = kAxes_, kSlanted = kSlanted_, kFill = kFill_, kStep = kStep_, kTogether = kTogether_;
  static constexpr int kChannels = kChannels_, kPixels = kPixels_, kBoxRows = kBoxRows_, kThreads = kThreads_;

  using From = typename Load::From;
  using Offset = Conditional<kFar, int64_t, int32_t>;
  using Value = typename Load::To;
  using To = typename Store::To;
  using Threads = ThreadTile<kWide, kAcross, kThreads>;
  using Row = RowNumber<kAxes>;
  using Taps = PixelTaps<Filter, P, kAxes, Offset, false>;
  static constexpr int kTaps = Taps::kPerAxis, kDeep = Taps::kDeep, kCount = Taps::kCount;
  static constexpr bool kWeighted = Filter::kTaps > 1;
  using Positions = PixelPositions<G, P, kAxes, Offset, kAffine, kWeighted, Formula>;
  static constexpr bool kReadsCoordinates = Formula::kExists ? Formula::kFields > 0 : !kAffine;  // for every pixel

  static constexpr int kPlanes = kChannels == kInPlanes ? kTogether : 1;
  using Box = ImageBox<From, kPlanes, kTogether / kPlanes, kPitch, kBoxRows, kThreads>;

  static_assert(kSlanted == 0 || (kOnce && kAxes == 2 && kWide == 32 && kAcross == 1 && kBoxRows == 0),
                "a tile is a warp wide, and its outputs are all there is to be stored");
  static constexpr int kPixelsAslant = kPixels * (kSlanted > 0 ? kSlanted : 1);  // a thread's
  template <bool kSteep>
  using Aslant = SlantedTile<(kSlanted > 0 ? Threads::kRows * kPixelsAslant : 1), kSteep>;
  // Where no pixel has to be looked at to know that it has no taps.
  static constexpr bool kFindsOutside = kSlanted > 0 && kAffine && !kByRules;
  // The pixels of a warp lead to a row of the image and to the one below it, some to this and the next: its taps lie in three
  // rows. If one load is of even rows, and another of odd ones, one of the two is of a single row. For bytes, which are in few
  // lines as it is, choosing takes longer.
  static constexpr bool kByTurns = kSlanted > 0 && Filter::kTaps == 2 && sizeof(From) >= 4;

  static void run(const WarpCall& call, const Block& block) {
    if constexpr (kOnce) {
      const Triple at = block.place();
      if (kBatched && (at.y >= call.strips || at.z >= call.batch)) return;  // there are blocks for the largest of calls
      const auto turn = turn_of<uint32_t>(call, {uint32_t(at.y), uint32_t(at.z)}, call.batch);
      make(call, block, turn.y, turn.plane, 0, kTogether);
    } else {
      const int64_t parts = call.batch * call.chunks;
      each_part(block, call.strips, parts, [&](int64_t strip, int64_t part) {
        const auto turn = turn_of<int64_t>(call, {strip, part}, parts);
        const Divided at = call.chunks == 1 ? Divided{turn.plane, 0} : divided(turn.plane, call.chunks);
        const int64_t first = at.remainder * call.chunk;
        make(call, block, turn.y, at.quotient, first, min(first + call.chunk, call.channels));
      });
    }
  }

 private:
  using Tile = BlockTile<Warp>;
  using Place = TilePlace<Warp>;
  template <bool kSteep>
  using Part = ThreadPixels<Warp, kSteep>;

  // Of all images and chunks of channels.
  template <class Number>
  static Turn<Number> turn_of(const WarpCall& call, const Turn<Number>& at, Number parts) {
    return kReadsCoordinates ? in_groups<Number>(at, call.strips, parts, call.group) : at;
  }

  // A tile of image n, of the channels from `first` up to `end`.
  static void make(const WarpCall& call, const Block& block, int64_t strip, int64_t n, int64_t first, int64_t end) {
    auto& tile = *reinterpret_cast<Tile*>(block.shared());
    const int32_t rows = Threads::kRows * kPixels * steps(call);
    const Place place = {call, tile, n, first, static_cast<Row>(strip) * rows, block.place().x * Threads::kColumns,
                         reinterpret_cast<To*>(block.shared() + kTileBytes)};
    block.each_thread([&](int thread) { place.enter(tile, rows, thread); });
    if constexpr (kBoxRows > 0) {
      const Box box = {tile.reached[0], tile.reached[1], reinterpret_cast<From*>(block.shared() + kTileBytes)};
      for (int64_t c = first; c < end; c += kTogether) {
        if (box.fits()) box.fill(block, place.image(c), call.image_strides, tile.axes, call.padding);
        each_row<false>(block, place, c, c + kTogether, [&](const Part<false>& own, Row row) {
          if (!kByRules && box.fits() && own.inner_outputs(FromBox<Warp, kTogether>{box}, row)) return;
          if (kByRules || !own.inner_outputs(FromImage<Warp, 1>{place}, row)) own.outputs_by_rules(row);
        });
      }
    } else {
      if (kFindsOutside && tile.is_outside[kTileItself]) {
        fill_outside<Warp>(block, place);
      } else if (kSlanted > 0 && tile.slant.is_steep) {
        from_image<true>(block, place, first, end);
      } else {
        from_image<false>(block, place, first, end);
      }
    }
  }

  static int32_t steps(const WarpCall& call) {
    return kSlanted > 0 ? kSlanted : kOnce ? 1 : static_cast<int32_t>(call.steps);
  }

  // kSteep: as the tile's slant is.
  template <bool kSteep>
  static void from_image(const Block& block, const Place& place, int64_t first, int64_t end) {
    each_row<kSteep>(block, place, first, end, [&](const Part<kSteep>& own, Row row) {
      if (kByRules || !own.inner_outputs(FromImage<Warp, kTogether>{place}, row)) own.outputs_by_rules(row);
    });
    if constexpr (kSlanted > 0) store_collected<Warp, kSteep>(block, place);
  }

  // function(own, row) for the rows of a block's tile, every thread with its own part of the channels from `first` up to
  // `end`.
  template <bool kSteep, class Function>
  static void each_row(const Block& block, const Place& place, int64_t first, int64_t end, const Function& function) {
    block.template each_thread<kOnce && kSlanted == 0>([&](int thread) {
      const Part<kSteep> own(place, first, end, place.x + Threads::column(thread));
      if (kSlanted == 0 && own.x >= static_cast<int32_t>(place.call.out_size[2])) return;
#pragma unroll 1
      for (int32_t s = 0; s < steps(place.call); ++s) {
        read_again();
        function(own, place.row + Threads::row(thread) + s * (Threads::kRows * kPixels));
      }
    });
  }
};

}  // namespace polyphase
