// The few ways an output row can be made. One is chosen for a whole call, from a few facts about it.
//
// Where the horizontal pass stands:
//
//   kNone     nowhere: columns stay as they are.
//   kFirst    before the sums, once for every source row. So eager computes uint8, with a rounding in between. Floats: where
//             that is less arithmetic; and where rows must be kept anyway, if they are shorter afterwards.
//   kLast     after the sums, once for every output row. Also where nothing is summed, where pixels only move, or where bytes
//             are asked to be rounded in this order, as Pillow does where rows shrink more than columns.
//
// How source rows are summed vertically, and planes over depth:
//
//   kNone     not at all: an output takes one row of that axis.
//   kAtOnce   vertically, together with the horizontal pass after it, so that the sum never lies in memory. Where the
//             horizontal pass offers that, and source rows can be read where they lie.
//   kInPlace  out of the source rows where they lie: their pixels are dense, and nothing comes before the sum. Over depth
//             only where there is no vertical sum either.
//   kKept     out of rows that have to be made first: gathered, converted, resampled; over depth, also summed vertically.
//             The next sum reads most of them again, so as many as one sum reads are kept.
//   kByTiles  vertically, of rows that the prologue computes and that are too long to be kept near: a tile of each is
//             computed for every sum anew, which is cheaper than to write whole rows to memory and read them again.
#pragma once

#include "polyphase/core/abi.h"
#include "polyphase/core/standard.h"

namespace polyphase {

enum class Horizontal { kNone, kFirst, kLast };
enum class Sum { kNone, kAtOnce, kInPlace, kKept, kByTiles };

// What the choice depends on.
struct RowFacts {
  bool sums_rows;         // y is weighted
  bool sums_planes;       // z is
  bool moves_only;        // no arithmetic, the target is dense, and there is no third axis
  bool in_place;          // source rows can be read where they lie
  bool by_pieces;         // the prologue can compute a piece of a row
  bool too_long;          // rows of one vertical sum together do not stay near
  bool far;               // nor does a plane of the source

  // Of the horizontal pass.
  bool has_map;           // it is there
  bool sums_pixels;       // it is weighted
  bool must_be_last;      // rows are summed, and rounded, before it
  bool first_is_better;   // it has to come first, or is less arithmetic there
  bool shrinks;           // rows are shorter after it
  bool reads_beyond_end;  // it reads more elements than a row has
  bool fetches;           // it can fetch rows meanwhile
  bool offers_together;   // it can make several rows at a time, and there is one plane
  bool offers_at_once;    // it can sum rows itself,
  bool wants_at_once;     // and that is best even where coming first would be less arithmetic
};

struct RowWay {
  Horizontal horizontal;
  Sum vertical, depth;
  bool moves_rows;  // nothing is computed: many rows are moved by one call
  bool lengthens;   // source rows are copied to where the horizontal pass may read beyond their end
  bool fetches;     // source rows that come next are fetched meanwhile
  bool together;    // the horizontal pass makes several source rows at a time: those that come next are kept

  bool sums() const { return vertical != Sum::kNone || depth != Sum::kNone; }
};

inline RowWay choose_way(const RowFacts& f) {
  const bool sums = f.sums_rows || f.sums_planes, sums_rows_only = f.sums_rows && !f.sums_planes;
  const bool must_be_last = f.must_be_last || (f.wants_at_once && f.in_place && sums_rows_only);
  const bool keeps_less = !f.in_place && f.shrinks && !f.sums_planes;
  const bool first = sums && f.sums_pixels && !must_be_last && (f.first_is_better || keeps_less);
  const bool made = first || !f.in_place;  // before they are summed

  RowWay way = {};
  way.horizontal = !f.has_map ? Horizontal::kNone : first ? Horizontal::kFirst : Horizontal::kLast;
  way.vertical = !f.sums_rows                                              ? Sum::kNone
                 : sums_rows_only && !first && f.by_pieces && f.too_long   ? Sum::kByTiles
                 : made                                                    ? Sum::kKept
                 : sums_rows_only && f.offers_at_once                      ? Sum::kAtOnce
                                                                           : Sum::kInPlace;
  way.depth = !f.sums_planes ? Sum::kNone : made || f.sums_rows ? Sum::kKept : Sum::kInPlace;
  way.moves_rows = !sums && f.moves_only && f.in_place && !f.reads_beyond_end;
  way.lengthens = f.has_map && (first || !sums) && f.in_place && f.reads_beyond_end;
  way.together = f.offers_together && !f.sums_planes && (first || !sums);
  way.fetches = f.far && f.in_place && (!first || (f.sums_rows && f.fetches));
  return way;
}

inline bool weighted(const Axis& axis) { return axis.taps != nullptr && axis.taps->index_only == 0; }

inline double mean_taps(const Axis& axis) {
  return weighted(axis) ? static_cast<double>(axis.tap_count) / axis.out_size : 1;
}

// What a tap of the horizontal pass costs, in taps of the vertical one: it needs a permutation and an index. It costs more
// where a row shrinks beyond 2x, as its taps then lie apart.
constexpr double kHorizontalCost = 2.0, kApartCost = 2.9;

// Whether it is cheaper to resample each input row horizontally than each sum of input rows.
inline bool horizontal_first_is_cheaper(const MapsCall& call) {
  if (!weighted(call.x) || !weighted(call.y)) return false;
  if (weighted(call.z)) return false;  // rows would be resampled again for every y: no plane of them is kept
  const double rows_out = call.y.out_size;
  const double rows_in = min<double>(call.y.in_size, rows_out * mean_taps(call.y));  // that are read at all
  const double in_length = call.x.in_size, out_length = call.x.out_size;
  const double cost = in_length > 2 * out_length ? kApartCost : kHorizontalCost;
  const double horizontal = cost * mean_taps(call.x) * out_length;
  const double first = rows_in * horizontal + rows_out * mean_taps(call.y) * out_length;
  const double last = rows_out * horizontal + rows_out * mean_taps(call.y) * in_length;
  return first < last;
}

}  // namespace polyphase
