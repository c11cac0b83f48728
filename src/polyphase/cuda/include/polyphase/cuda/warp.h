// Warps: a thread makes a few pixels of a tile at once, and their channels a few at a time; then the pixels further down.
//
// Most pixels have all their taps inside the image. These are neighbours: a row of them is read from one address on. Where a
// thread has another pixel, or a sum that is not finite, its pixels are made one by one, by the rules of padding.
//
// Where a matrix leads from a tile to a small part of the image, that part may be brought to shared memory first: there a
// load takes no longer for taps that lie in many rows. Or a warp's pixels lie aslant.
#pragma once

#include "polyphase/cuda/vectors.h"
#include "polyphase/cuda/warp_box.h"
#include "polyphase/cuda/warp_outside.h"
#include "polyphase/cuda/warp_slant.h"
#include "polyphase/cuda/warp_taps.h"

namespace polyphase {

// How the channels of a pixel lie that are fetched together: apart, side by side, or as one vector.
enum Channels { kInPlanes, kInPixels, kInVectors };

// kAffine: coordinates are matrices, else a grid. kFar: the elements of a plane are counted in 64 bits. kByRules: all pixels
// are made one by one. kOnce: a block has one tile, and images have kTogether channels. kSlanted: then, in how many steps a
// tile is made whose pixels lie aslant; 0 where they do not, and it is made in one. kFill: a FillRule. kStep: elements from a
// pixel to the next along x, 0 where the call says it. kTogether: channels that are fetched together, of which every chunk has
// a multiple. kPixels: a thread's, one below the other, as many rows apart as a block has threads. kPitch and kBoxRows: of an
// `ImageBox`, 0 where there is none.
template <class Load, class Store, class Filter, class G, class P, int kAxes, class Formula, bool kAffine, bool kFar,
          bool kByRules, bool kOnce, int kSlanted, int kFill, int kStep, int kTogether, int kChannels, int kPixels, int kWide,
          int kAcross, int kPitch, int kBoxRows, int kThreads>
struct Warp {
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

  // And where its image and its target begin, of the block's first channel: products of 64 bits, which no thread makes again.
  struct Tile : WarpTile<P, kAxes> {
    const From* source;
    To* target;
    Slant slant;
    bool is_outside[kNeighbourhood];  // where pixels lie aslant, by a matrix
  };

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
    block.each_thread([&](int thread) { enter(place, tile, rows, thread); });
    if constexpr (kBoxRows > 0) {
      const Box box = {tile.reached[0], tile.reached[1], reinterpret_cast<From*>(block.shared() + kTileBytes)};
      for (int64_t c = first; c < end; c += kTogether) {
        if (box.fits()) box.fill(block, place.image(c), call.image_strides, tile.axes, call.padding);
        each_row<false>(block, place, c, c + kTogether, [&](const Part<false>& own, Row row) {
          if (!kByRules && box.fits() && own.inner_outputs(FromBox<kTogether>{box}, row)) return;
          if (kByRules || !own.inner_outputs(FromImage<1>{place}, row)) own.outputs_by_rules(row);
        });
      }
    } else {
      if (kFindsOutside && tile.is_outside[kTileItself]) {
        fill_outside(block, place);
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

  static_assert(sizeof(Tile) <= kTileBytes);
  static constexpr int kPlanes = kChannels == kInPlanes ? kTogether : 1;
  using Box = ImageBox<From, kPlanes, kTogether / kPlanes, kPitch, kBoxRows, kThreads>;

  // Whether padding makes taps of those outside the image, and leaves positions as they are. With a fill, they are made by
  // its rules.
  static bool pads_taps(const WarpCall& call) {
    return kFill == kFillNone && (Filter::kTaps > 2 || call.padding == kZeros);
  }

  // The tile of a block, of image n, from channel `first` on.
  struct Place {
    const WarpCall& call;
    const Tile& tile;
    int64_t n, first;
    Row row;
    int32_t x;
    To* collected;  // in shared memory, where pixels lie aslant

    const From* image(int64_t channel) const { return tile.source + (channel - first) * call.image_strides.channel; }
    To* target(int64_t channel) const { return global(tile.target) + (channel - first) * call.target_strides.channel; }
  };

  // What threads know of their tile. Where pixels lie aslant, parts of it are found by different warps: one alone would take
  // as long as for a good part of the pixels, and all others wait.
  static void enter(const Place& place, Tile& tile, int32_t rows, int thread) {
    const WarpCall& call = place.call;
    const int axis = thread % 32, warp = thread / 32;
    const auto finds = [&](int part) { return warp == (kSlanted > 0 ? part : 0); };
    if constexpr (kFindsOutside) {
      if (finds(2) && axis < kNeighbourhood) tile.is_outside[axis] = is_outside(place, rows, axis);
    }
    if (axis >= kAxes) return;
    if (kAffine && finds(0)) tile.template enter_matrix<G>(call, place.n, output_pixel<kAxes>(call, place.row, place.x), axis);
    if (finds(1)) tile.template enter_axis<G>(call, axis);
    if (finds(2) && axis == 0) {
      tile.source = static_cast<const From*>(call.source) + image_offset(call.image_strides, place.n, place.first);
      tile.target = static_cast<To*>(call.target) + image_offset(call.target_strides, place.n, place.first);
    }
    if (kBoxRows > 0 && finds(0)) tile.template reach<Filter>(axis, Threads::kColumns, rows, pads_taps(call));
    if constexpr (kSlanted > 0) {
      if (finds(3) && axis == 0) tile.slant = slant_of(place);
    }
  }

  // ---- pixels aslant

  static_assert(kSlanted == 0 || (kOnce && kAxes == 2 && kWide == 32 && kAcross == 1 && kPlanes == kTogether && kBoxRows == 0),
                "a tile is a warp wide, and its outputs are all there is to be stored");
  static_assert(kSlanted == 0 || kThreads >= 128, "four warps find what is known of a tile");
  static constexpr int kPixelsAslant = kPixels * (kSlanted > 0 ? kSlanted : 1);  // a thread's
  template <bool kSteep>
  using Aslant = SlantedTile<(kSlanted > 0 ? Threads::kRows * kPixelsAslant : 1), kSteep>;

  // As the tile's first pixel has it.
  static Slant slant_of(const Place& place) {
    static_assert(kAffine || Formula::kExists, "a grid would have to be read");
    if constexpr (kAffine) {
      const CoordinateStrides& s = place.call.coordinate_strides;
      const G* row = static_cast<const G*>(place.call.coordinates) + place.n * s.batch + s.y;
      return Slant::of(static_cast<P>(row[0]) * static_cast<P>(place.call.base_step[2]),
                       static_cast<P>(row[s.x]) * static_cast<P>(place.call.base_step[1]));
    } else {
      const Positions positions(place.call, place.tile, place.n);
      const auto y_of = [&](int32_t x, int32_t y) {
        P at[kAxes];
        Formula::coordinates(positions.read({0, y, x}), at);
        return at[1];
      };
      const P first = y_of(place.x, place.row);
      return Slant::of(y_of(place.x + 1, place.row) - first, y_of(place.x, place.row + 1) - first);
    }
  }

  // Where no pixel has to be looked at to know that it has no taps.
  static constexpr bool kFindsOutside = kSlanted > 0 && kAffine && !kByRules;

  static bool is_outside(const Place& place, int32_t rows, int which) {
    const WarpCall& call = place.call;
    if (call.padding != kZeros || call.target_strides.x != 1 || (which == kTileBefore && place.x == 0)) return false;
    const int32_t x = place.x + (which == kTileBefore ? -Threads::kColumns : which == kTileBehind ? Threads::kColumns : 0);
    return misses_image<Filter, G, P>(call, place.n, output_pixel<kAxes>(call, place.row, x), Threads::kColumns, rows);
  }

  static void fill_outside(const Block& block, const Place& place) {
    using OfRow = OutsideRow<To, Threads::kColumns>;
    constexpr int kRows = Threads::kRows * kPixelsAslant, kAtOnce = kThreads / OfRow::kThreadsOfRow;
    const WarpCall& call = place.call;
    block.template each_thread<true>([&](int thread) {
      const bool before = place.tile.is_outside[kTileBefore], behind = place.tile.is_outside[kTileBehind];
      const Part<false> own(place, place.first, place.first + kTogether, place.x);
#pragma unroll 1
      for (int i = thread / OfRow::kThreadsOfRow; i < kTogether * kRows; i += kAtOnce) {
        const Row row = place.row + i % kRows;
        if (row >= row_count<kAxes>(call)) continue;
        const int64_t c = place.first + i / kRows;
        const Offset offset = offset_in<kAxes, Offset>(call.target_strides, output_pixel<kAxes>(call, row, place.x));
        const OfRow filled = {element(place.target(c), offset), static_cast<int32_t>(call.out_size[2]) - place.x};
        const To value = Store::apply(own.outer_filled(Value{}, P(0), c), call, c, nullptr);
        filled.fill(thread % OfRow::kThreadsOfRow, before, behind, value);
      }
    });
  }

  template <bool kSteep>
  static void store_collected(const Block& block, const Place& place) {
    block.template each_thread<true>([&](int thread) {
      const int column = Threads::column(thread);
      const int32_t x = place.x + column;
      if (x >= static_cast<int32_t>(place.call.out_size[2])) return;
      const ImageStrides& strides = place.call.target_strides;
      const OutputPixel first = output_pixel<kAxes>(place.call, place.row + Threads::row(thread), x);
      To* of_row = element(place.target(place.first), offset_in<kAxes, Offset>(strides, first));
#pragma unroll
      for (int p = 0; p < kPixelsAslant; ++p, of_row += Threads::kRows * strides.y) {
        const int row = Threads::row(thread) + p * Threads::kRows;
        if (place.row + row >= row_count<kAxes>(place.call)) return;
        const To* const from = place.collected + Aslant<kSteep>::place({column, row});
#pragma unroll
        for (int c = 0; c < kTogether; ++c) of_row[c * strides.channel] = from[c * Aslant<kSteep>::kPixels];
      }
    });
  }

  // The pixels of a warp lead to a row of the image and to the one below it, some to this and the next: its taps lie in three
  // rows. If one load is of even rows, and another of odd ones, one of the two is of a single row. For bytes, which are in few
  // lines as it is, choosing takes longer.
  static constexpr bool kByTurns = kSlanted > 0 && Filter::kTaps == 2 && sizeof(From) >= 4;

  // Where a pixel's taps begin, and what leads from a row of them to the next. `turned`: the second row comes first.
  template <class Places>
  struct Start {
    Places first, down;
    bool turned;
  };

  // Taps from the image itself, of kGroup channels at a time.
  template <int kGroup>
  struct FromImage {
    static constexpr int kChannelsAtOnce = kGroup;
    Place place;

    bool has(const P (&at)[kAxes]) const {
      bool inside = true;
#pragma unroll
      for (int a = 0; a < kAxes; ++a) inside = inside & InnerTaps<Filter, P>::exist(at[a], P(0), place.tile.axes[a].last);
      return inside;
    }

    // Whether no tap of a pixel is inside. Of a position that is no finite number, taps are none.
    bool misses(const P (&at)[kAxes]) const {
      bool outside = false, finite = true;
#pragma unroll
      for (int a = 0; a < kAxes; ++a) {
        outside = outside | InnerTaps<Filter, P>::miss(at[a], place.tile.axes[a].last);
        finite = finite & (at[a] - at[a] == 0);
      }
      return outside & finite;
    }

    Start<Offset> start(const InnerTaps<Filter, P> (&taps)[kAxes]) const {
      const ImageStrides& s = place.call.image_strides;
      const auto down = static_cast<Offset>(s.y);
      Offset first = taps[0].first * step() + taps[1].first * down;
      if (kAxes == 3) first += taps[kAxes - 1].first * static_cast<Offset>(s.z);
      const bool turned = kByTurns && taps[1].first % 2 != 0;
      return {turned ? first + down : first, turned ? -down : down, turned};
    }

    // Of a pixel's taps in the channels from c on.
    void fetch(int64_t c, const Start<Offset>& start, From (&read)[kGroup][kCount]) const {
      const ImageStrides& s = place.call.image_strides;
      const From* from = place.image(c);
#pragma unroll
      for (int line = 0; line < kDeep * kTaps; ++line) {
        Offset offset = start.first + line % kTaps * start.down;
        if (kAxes == 3) offset += line / kTaps * static_cast<Offset>(s.z);
#pragma unroll
        for (int x = 0; x < kTaps; ++x) {
          const int k = line * kTaps + x;
          if constexpr (kChannels == kInVectors && kGroup > 1) {
            const auto values = fetched(reinterpret_cast<const Vector<From, kGroup>*>(element(from, offset) + x * step()));
#pragma unroll
            for (int t = 0; t < kGroup; ++t) read[t][k] = values.items[t];
          } else {
#pragma unroll
            for (int t = 0; t < kGroup; ++t) {
              read[t][k] = fetched(element(from + t * (kChannels == kInPlanes ? s.channel : 1), offset) + x * step());
            }
          }
        }
      }
    }

    Offset step() const { return kStep > 0 ? kStep : static_cast<Offset>(place.call.image_strides.x); }
  };

  // Taps from shared memory, where the channels are that are asked for.
  template <int kGroup>
  struct FromBox {
    static constexpr int kChannelsAtOnce = kGroup;
    Box box;

    bool has(const P (&at)[kAxes]) const {
      const PixelRange ranges[] = {box.x, box.y};
      bool inside = true;
#pragma unroll
      for (int a = 0; a < 2; ++a) {
        inside = inside & InnerTaps<Filter, P>::exist(at[a], static_cast<P>(ranges[a].first), static_cast<P>(ranges[a].last));
      }
      return inside;
    }

    bool misses(const P (&)[kAxes]) const { return false; }  // a box has what lies outside too

    Start<int32_t> start(const InnerTaps<Filter, P> (&taps)[kAxes]) const {
      return {box.place(taps[0].first, taps[1].first), 0, false};
    }

    void fetch(int64_t, const Start<int32_t>& start, From (&read)[kGroup][kCount]) const {
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
#pragma unroll
        for (int t = 0; t < kGroup; ++t) read[t][k] = box.data[start.first + Box::offset(k % kTaps, k / kTaps, t)];
      }
    }
  };

  // kSteep: as the tile's slant is.
  template <bool kSteep>
  static void from_image(const Block& block, const Place& place, int64_t first, int64_t end) {
    each_row<kSteep>(block, place, first, end, [&](const Part<kSteep>& own, Row row) {
      if (kByRules || !own.inner_outputs(FromImage<kTogether>{place}, row)) own.outputs_by_rules(row);
    });
    if constexpr (kSlanted > 0) store_collected<kSteep>(block, place);
  }

  // function(own, row) for the rows of a block's tile, every thread with its own part of the channels from `first` up to `end`.
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

  // A pixel, and where its output is collected.
  struct Own : OutputPixel {
    int collected;
  };

  // What is a thread's: pixels of column x, if they do not lie aslant.
  template <bool kSteep>
  struct Part {
    const Place& place;
    const WarpCall& call;
    const Tile& tile;
    int64_t n, first, end;
    int32_t x;
    Positions positions;

    Part(const Place& of, int64_t from, int64_t to, int32_t column)
        : place(of), call(of.call), tile(of.tile), n(of.n), first(from), end(to), x(column), positions(call, tile, n) {}

    // Pixel p from `row` on. One that is not there is as the last one of its row or column; aslant, it is made, and not stored.
    Own own(Row row, int p) const {
      const Row last = row_count<kAxes>(call) - 1;
      if constexpr (kSlanted > 0) {
        const auto at = Aslant<kSteep>::spot(tile.slant, static_cast<int>(row - place.row) + p * Threads::kRows, x - place.x);
        const OutputPixel pixel = {0, min(place.row + at.row, last),
                                   min(place.x + at.column, static_cast<int32_t>(call.out_size[2]) - 1)};
        return {pixel, Aslant<kSteep>::place(at)};
      } else {
        return {output_pixel<kAxes>(call, min<Row>(row + p * Threads::kRows, last), x), 0};
      }
    }

    // The pixels from `row` on; whether all could be made.
    template <class Source>
    bool inner_outputs(const Source& source, Row row) const {
      constexpr int kGroup = Source::kChannelsAtOnce;
      const Row rows = row_count<kAxes>(call);
      Own pixels[kPixels];
      P at[kPixels][kAxes];
      const bool all_exist = kSlanted > 0 || row + (kPixels - 1) * Threads::kRows < rows;
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
      InnerTaps<Filter, P> taps[kPixels][kAxes];
      decltype(source.start(taps[0])) start[kPixels];
#pragma unroll
      for (int p = 0; p < kPixels; ++p) {
#pragma unroll
        for (int a = 0; a < kAxes; ++a) taps[p][a].make(at[p][a]);
        start[p] = source.start(taps[p]);
      }
      P spoilt = 0;
      for (int64_t c = first; c < end; c += kGroup) {
        From read[kPixels][kGroup][kCount];
#pragma unroll
        for (int p = 0; p < kPixels; ++p) source.fetch(c, start[p], read[p]);
#pragma unroll
        for (int p = 0; p < kPixels; ++p) {
          Target target(place, c, pixels[p]);
#pragma unroll
          for (int t = 0; t < kGroup; ++t) {
            const Value value = sum(taps[p], start[p].turned, [&](int k) { return Load::apply(read[p][t][k], call, c + t); });
            if constexpr (kWeighted) spoilt = multiply_add(value, P(0), spoilt);
            target.store(call, c + t, inner_filled(value, c + t));
            target.next(call);
          }
        }
      }
      return spoilt == 0;
    }

    void output_outside(const Own& pixel) const {
      Target target(place, first, pixel);
#pragma unroll 1
      for (int64_t c = first; c < end; ++c, target.next(call)) target.store(call, c, outer_filled(Value{}, P(0), c));
    }

    // From `row` on, as many as there are.
    void outputs_by_rules(Row row) const {
      read_again();
#pragma unroll 1
      for (int p = 0; p < kPixels; ++p) {
        if (kSlanted > 0 || row + p * Threads::kRows < row_count<kAxes>(call)) output_by_rules(own(row, p));
      }
    }

    // Channels that are read at once: a warp waits for those of its lanes that are at an edge.
    static constexpr int kRuled = kTogether * kCount <= 16 ? kTogether : 1;

    // Taps of weight 0 are not read by the map: their values need not be finite.
    void output_by_rules(const Own& pixel) const {
      Target target(place, first, pixel);
      Taps taps;
      taps.make(positions, pixel, call.image_strides);
      const From* from = place.image(first);
      const auto share = kFill == kFillNone ? P(1) : share_of(taps, pixel);
#pragma unroll 1
      for (int64_t c = first; c < end; c += kRuled, from += kRuled * call.image_strides.channel) {
        From read[kRuled][kCount] = {};
#pragma unroll
        for (int t = 0; t < kRuled; ++t) {
#pragma unroll
          for (int k = 0; k < kCount; ++k) {
            if (taps.weight(k) != 0) read[t][k] = fetched(from + t * call.image_strides.channel + taps.offset(k));
          }
        }
#pragma unroll
        for (int t = 0; t < kRuled; ++t) {
          const auto value_of = [&](int k) { return taps.weight(k) != 0 ? Load::apply(read[t][k], call, c + t) : Value{}; };
          target.store(call, c + t, outer_filled(sum(taps.axes, false, value_of), share, c + t));
          target.next(call);
        }
      }
    }

    // How much of a pixel lies inside the image; of the nearest and with a hard edge 0 or 1.
    P share_of(const Taps& taps, const OutputPixel& pixel) const {
      if constexpr (!kWeighted || kFill != kFillEdge) return taps.share();
      P at[kAxes];
      positions.find(pixel, at);
      bool inside = true;
#pragma unroll
      for (int a = 0; a < kAxes; ++a) inside = inside & lies_in_pixel(at[a], tile.axes[a]);
      return static_cast<P>(inside);
    }

    Value fill_of(int64_t c) const { return fetched(static_cast<const Value*>(call.fill) + c * call.fill_step); }

    // What lies inside, with all its taps.
    Value inner_filled(const Value& value, int64_t c) const {
      if constexpr (kWeighted && kFill == kFillBlend) return filled(value, P(1), fill_of(c), kFill);
      return value;
    }
    Value outer_filled(const Value& value, P share, int64_t c) const {
      if constexpr (kFill == kFillNone) {
        return value;
      } else if constexpr (kWeighted) {
        return filled(value, share, fill_of(c), kFill);
      } else {
        return share != 0 ? value : fill_of(c);
      }
    }
  };

  // Along x, then y, then z. value(k): of tap k; where rows are `turned`, of the first two the second comes first.
  template <class AxisTaps, class Read>
  static Value sum(const AxisTaps (&taps)[kAxes], bool turned, const Read& value) {
    if constexpr (!kWeighted) {
      return value(0);
    } else {
      Value result = 0;
#pragma unroll
      for (int z = 0; z < kDeep; ++z) {
        Value of_row[kTaps] = {}, of_plane = 0;
#pragma unroll
        for (int y = 0; y < kTaps; ++y) {
#pragma unroll
          for (int x = 0; x < kTaps; ++x) {
            of_row[y] = multiply_add(taps[0].weight[x], value((z * kTaps + y) * kTaps + x), of_row[y]);
          }
        }
        if (kByTurns && turned) swap(of_row[0], of_row[1]);
#pragma unroll
        for (int y = 0; y < kTaps; ++y) of_plane = multiply_add(taps[1].weight[y], of_row[y], of_plane);
        result = kAxes == 3 ? multiply_add(taps[kAxes - 1].weight[z], of_plane, result) : of_plane;
      }
      return result;
    }
  }

  // Where a pixel's channel is stored, and what its arithmetic reads besides.
  struct Target {
    To* at;
    int64_t tensors[at_least_one(kTensors)];

    Target(const Place& place, int64_t c, const Own& pixel)
        : at(kSlanted > 0 ? place.collected + (static_cast<int>(c - place.first) * Aslant<false>::kPixels + pixel.collected)
                      : element(place.target(c), offset_in<kAxes, Offset>(place.call.target_strides, pixel))) {
      for (int t = 0; t < kTensors; ++t) {
        const ImageStrides& s = place.call.tensor_strides[t];
        tensors[t] = image_offset(s, place.n, c) + offset_in<kAxes, Offset>(s, pixel);
      }
    }
    void store(const WarpCall& call, int64_t c, const Value& value) { *at = Store::apply(value, call, c, tensors); }
    void next(const WarpCall& call) {
      at += kSlanted > 0 ? Aslant<false>::kPixels : call.target_strides.channel;
      for (int t = 0; t < kTensors; ++t) tensors[t] += call.tensor_strides[t].channel;
    }
  };

  static int64_t image_offset(const ImageStrides& s, int64_t n, int64_t c) { return n * s.batch + c * s.channel; }
};

}  // namespace polyphase
