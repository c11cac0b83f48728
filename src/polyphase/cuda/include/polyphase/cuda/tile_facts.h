// What a block knows of the tiles that it takes one after another: a list of all lies on the device, and a row for every call.
// While a tile is made, one warp finds out about those that follow, a step of it for each: which one it is, then its call,
// then what its groups of outputs read, and at last all of it together.
#pragma once

#include "polyphase/core/standard.h"
#include "polyphase/cuda/batch.h"
#include "polyphase/cuda/lanes.h"
#include "polyphase/cuda/staged_rows.h"

namespace polyphase {

constexpr int kMostColumns = 4, kMostUnits = 2;  // groups of outputs of a tile, along x and down y

// Groups of a tile: the first ones, and how many.
struct Groups {
  int column, unit, columns, units;

  static Groups of(const MapsCall& call, int number) {
    const int of_row = static_cast<int>(call.strips), down = number / of_row, across = number - down * of_row;
    const int column = across * static_cast<int>(call.tile), unit = down * static_cast<int>(call.strip);
    return {column, unit, min(all_of(call.x) - column, static_cast<int>(call.tile)),
            min(all_of(call.y) - unit, static_cast<int>(call.strip))};
  }

  static int all_of(const Axis& axis) { return (static_cast<int>(axis.out_size) + kGroup - 1) / kGroup; }
};

// What they read; the last one stands for those that are not there.
struct GroupRanges {
  GroupRange columns[kMostColumns], units[kMostUnits];

  template <int kCount>
  static GroupRange together(const GroupRange (&each)[kCount]) {
    GroupRange all = each[0];
#pragma unroll
    for (int i = 1; i < kCount; ++i) all = {min(all.begin, each[i].begin), max(all.end, each[i].end)};
    return all;
  }
};

// Of pixels of so many channels each, in planes: what a tile reads, bytes and rows from the first ones on.
template <int kChannels>
struct alignas(16) Tile {
  const uint8_t* from;                       // the first byte of the first plane
  const uint8_t *weights_along, *weights_down;
  Groups groups;
  int length, rows;                          // bytes, rows
  int begins[kMostColumns];                  // of columns, bytes behind the first
  int tops[kMostUnits], ends[kMostUnits];    // of units, rows behind it
  bool inside;                               // whether pieces of 16 bytes around all of it are of the plane, too
  bool has_new_values;                       // whether what is stored for a byte is another than of the tile before

  Tile(const MapsCall& call, int number, const GroupRanges& ranges, const MapsCall* before) {
    groups = Groups::of(call, number);
    const GroupRange x = GroupRanges::together(ranges.columns), y = GroupRanges::together(ranges.units);
    const int left = x.begin * kChannels;
    length = (x.end - x.begin) * kChannels;
    rows = y.end - y.begin;
#pragma unroll
    for (int i = 0; i < kMostColumns; ++i) begins[i] = ranges.columns[i].begin * kChannels - left;
#pragma unroll
    for (int i = 0; i < kMostUnits; ++i) tops[i] = ranges.units[i].begin - y.begin, ends[i] = ranges.units[i].end - y.begin;
    const auto step = call.y.in_stride;
    const int64_t first = y.begin * step + left, last = first + (rows - 1) * step + length;
    from = static_cast<const uint8_t*>(call.source) + (call.source_origin + first);
    inside = first >= Piece::kBytes - 1 && last + Piece::kBytes - 1 <= plane_bytes(call);
    weights_along = static_cast<const uint8_t*>(call.x.weight) + weight_bytes(call, groups.column);
    weights_down = static_cast<const uint8_t*>(call.y.weight) + weight_bytes(call, groups.unit);
    has_new_values = before == nullptr || !has_operands_of(call, *before);
  }

  // Bytes that may be read of a plane, from its first one on.
  static int64_t plane_bytes(const MapsCall& call) {
    return (call.y.in_size - 1) * call.y.in_stride + call.x.in_size * kChannels;
  }
  static int weight_bytes(const MapsCall& call, int groups) {
    return groups * static_cast<int>(call.x.taps) * WeightMatrix::kBytes;
  }

 private:
  static bool has_operands_of(const MapsCall& call, const MapsCall& other) {
    bool same = true;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) same = same && call.vectors[i].pointer == other.vectors[i].pointer;
    return same;
  }
};

// Of the tile that is made, and of those that follow, in shared memory.
template <int kChannels, int kThreads>
class TileFacts {
 public:
  static constexpr int kBytes = 320, kTurns = 4;  // calls come behind

  using Tile = polyphase::Tile<kChannels>;

  TileFacts(const TiledBatch<MapsCall>& batch, const Block& block, uint8_t* memory)
      : batch_(batch), place_(block.place().x), blocks_(block.count().x), facts_(reinterpret_cast<Facts*>(memory)) {}

  static constexpr int bytes() { return kBytes + (kTurns * sizeof(MapsCall) + 15) / 16 * 16; }

  // In the list.
  int number(int turn) const { return turn * blocks_ + place_; }
  bool is_there(int turn) const { return number(turn) < static_cast<int>(batch_.tiles); }

  const Tile& tile(int turn) const { return facts_->tiles[turn % 2]; }
  const MapsCall& call(int turn) const { return facts_->calls[turn % kTurns]; }

  // All of the first tile, and what is known of those after it while it is made.
  void begin(const Block& block) const {
    block.each_thread([&](int thread) {
      if (thread < kTurns && is_there(thread)) fetch_turn(thread);
      arrive();
    });
    block.each_thread([&](int thread) {
#pragma unroll 1
      for (int turn = 0; turn < kTurns - 1 && is_there(turn); ++turn) fetch_call(turn, thread, kThreads);
      arrive();
    });
    block.each_thread([&](int thread) {
#pragma unroll 1
      for (int turn = 0; turn < 2 && is_there(turn); ++turn) fetch_ranges(turn, thread);
      arrive();
    });
    block.each_thread([&](int thread) {
      if (thread == 0) make(0);
    });
  }

  // By threads that are one warp, while the tile of a turn is made: a step for each that follows. They have arrived when the
  // warp has waited for its group of pieces.
  void go_on(int turn, int lane) const {
    if (lane == 0 && is_there(turn + 1)) make(turn + 1);
    if (is_there(turn + 2)) fetch_ranges(turn + 2, lane);
    if (is_there(turn + 3)) fetch_call(turn + 3, lane, kLanes);
    if (lane == 0 && is_there(turn + 4)) fetch_turn(turn + 4);
    Piece::end_group();
  }

 private:
  struct Facts {
    Tile tiles[2];
    GroupRanges ranges[2];
    TileOfCall turns[kTurns];
    MapsCall calls[kTurns];
  };
  static_assert(sizeof(Tile) * 2 + sizeof(GroupRanges) * 2 + sizeof(TileOfCall) * kTurns == kBytes, "as `tiles.py` has it");

  static void arrive() {
    Piece::end_group();
    Piece::arrived<0>();
  }

  TileOfCall& turn_at(int turn) const { return facts_->turns[turn % kTurns]; }

  void fetch_turn(int turn) const { Piece::copy_eight(batch_.tile(number(turn)), &turn_at(turn)); }

  void fetch_call(int turn, int thread, int threads) const {
    const auto* const from = reinterpret_cast<const uint64_t*>(batch_.calls.known() + turn_at(turn).call);
    auto* const to = reinterpret_cast<uint64_t*>(&facts_->calls[turn % kTurns]);
#pragma unroll 1
    for (int i = thread; i < static_cast<int>(sizeof(MapsCall) / 8); i += threads) Piece::copy_eight(from + i, to + i);
  }

  void fetch_ranges(int turn, int thread) const {
    if (thread >= kMostColumns + kMostUnits) return;
    const Groups of = Groups::of(call(turn), turn_at(turn).number);
    const bool along = thread < kMostColumns;
    const int i = along ? thread : thread - kMostColumns, count = along ? of.columns : of.units;
    const auto* const first = reinterpret_cast<const GroupRange*>((along ? call(turn).x : call(turn).y).first.known());
    Piece::copy_eight(first + (along ? of.column : of.unit) + min(i, count - 1),
                      facts_->ranges[turn % 2].columns + thread);
  }

  void make(int turn) const {
    facts_->tiles[turn % 2] =
        Tile(call(turn), turn_at(turn).number, facts_->ranges[turn % 2], turn == 0 ? nullptr : &call(turn - 1));
  }

  const TiledBatch<MapsCall>& batch_;
  const int place_, blocks_;
  Facts* const facts_;
};

}  // namespace polyphase
