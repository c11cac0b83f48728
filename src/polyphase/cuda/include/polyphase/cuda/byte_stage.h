// Bytes through windows of few taps, as in byte_walk.h, where there are too few threads to wait for memory: what a thread
// would read itself is mostly what its neighbours read too, and little is on its way at a time. So a block brings rows to
// shared memory, many of them at once, and its threads read them there.
#pragma once

#include "polyphase/cuda/block.h"
#include "polyphase/cuda/byte_columns.h"
#include "polyphase/cuda/staged_rows.h"

namespace polyphase {

// kChannels, kPixels, kStores: of `ByteColumns`. kRows and kBuffers: of `StagedRows`. kStrip: rows that a block makes. Rows
// of y's table begin at inputs that do not descend.
template <class Load, class Store, int kX, int kY, int kChannels, int kPixels, int kStores, bool kBordered, int kRows,
          int kBuffers, int kStrip, int kThreads>
struct ByteStage {
  static_assert(Load::kIsIdentity, "bytes are summed as they lie in memory");
  static constexpr int kTile = kThreads * kPixels;  // pixels
  // What a tile reads whose windows are as wide as an antialiased shrink has them, or that does not shrink: device_cuts.h
  // has the same.
  static constexpr int kReach = kTile * (kX > 2 ? kX : 2) / 2 + kX + 1;
  // From its first piece on, and up to 3 bytes more on either side, of words that a window lies in.
  static constexpr int kAround = 15 + 6;
  static constexpr int kSpan = (kReach * kChannels + kAround + 15) / 16 * 16;
  using Columns = ByteColumns<Store, kX, kY, kChannels, kPixels, kStores, kBordered>;
  using To = typename Store::To;
  using Row = typename Columns::Row;
  using Outputs = typename Columns::Outputs;
  using Staged = StagedRows<kRows, kBuffers, kSpan, kThreads>;
  static constexpr int kRead = Columns::kRead;

  static void run(const MapsCall& call, const Block& block) {
    Row* const rows = reinterpret_cast<Row*>(block.shared());  // kStrip, and one that is read but not used
    To* const outputs = reinterpret_cast<To*>(rows + kStrip + 1);
    auto* const shared = reinterpret_cast<uint8_t*>(outputs + Outputs::kSize);
    const Tile tile(call, block.place().x * kTile);
    each_part(block, call.strips, call.planes, [&](int64_t strip, int64_t plane) {
      const int64_t y = strip * kStrip;
      const int count = static_cast<int>(call.y.out_size - y < kStrip ? call.y.out_size - y : kStrip);
      const Place place = row_place(call, plane_place(call, plane), y);
      const int top = call.y.first[y], end = call.y.first[y + count - 1] + kY;
      const RowBytes source = tile.bytes_of(call, place);
      const Staged staged(shared, source);
      States<Columns, kThreads> columns;
      block.each_thread([&](int thread) {
        stage_rows<kY, kBordered, kThreads, int32_t>(call, rows, y, count, thread, Columns::Kept::weigh);
        Outputs::template fill<kThreads>(call, place, outputs, thread);
        columns.of(thread).begin(call, place, tile.x + thread * kPixels, tile.pixels - thread * kPixels, top, tile.begin);
        if (!tile.is_near()) return;
#pragma unroll
        for (int group = 0; group + 1 < kBuffers; ++group) staged.fetch(group, top + group * kRows, end, thread);
        Staged::await();
      });
      if (!tile.is_near()) {
        block.each_thread([&](int thread) { alone(call, columns.of(thread), source, end, rows, count, outputs); });
        return;
      }
      for (int row = top, group = 0; row < end; row += kRows, ++group) {
        block.each_thread([&](int thread) {
          staged.fetch(group + kBuffers - 1, row + (kBuffers - 1) * kRows, end, thread);
          over(call, columns.of(thread), source, staged.group(group), end < row + kRows ? end : row + kRows, rows, count, outputs);
          Staged::await();
        });
      }
    });
  }

 private:
  // Neighbouring pixels, and the bytes of a row that their windows lie in.
  struct Tile {
    int x, pixels;      // the first one, and how many are inside the row
    int begin, length;  // bytes

    Tile(const MapsCall& call, int at) : x(at) {
      const int left = static_cast<int>(call.x.out_size) - x;
      pixels = left < kTile ? left : kTile;
      const int one = call.x.first[x], other = call.x.first[x + pixels - 1];
      begin = (one < other ? one : other) * kChannels;
      length = ((one < other ? other - one : one - other) + kX) * kChannels;
    }

    bool is_near() const { return length + kAround <= kSpan; }

    RowBytes bytes_of(const MapsCall& call, const Place& place) const {
      const uint8_t* const first = static_cast<const uint8_t*>(call.source) + place.source;
      const int64_t step = call.y.in_stride;
      return {first + begin, step, length, first, first + (call.y.in_size - 1) * step + call.x.in_size * kChannels};
    }
  };

  // Through the rows of a group, whose bytes lie from an address on, up to row `end`.
  static void over(const MapsCall& call, Columns& own, const RowBytes& source, const uint8_t* bytes, int end, const Row* rows,
                   int count, const To* outputs) {
    if (own.owned <= 0) return;
    if (own.next == 0) own.row = rows[0];
    const auto step = static_cast<int>(source.step);
    int lead = source.lead(own.have);
#pragma unroll 1
    for (; own.have < end; bytes += kSpan) {
      typename Columns::Window windows[kPixels];
#pragma unroll
      for (int p = 0; p < kPixels; ++p) {
        const auto* const from = reinterpret_cast<const uint32_t*>(bytes + ((lead + own.first[p]) & ~3));
#pragma unroll
        for (int w = 0; w < kRead; ++w) windows[p].words[w] = from[w];
      }
#pragma unroll
      for (int p = 0; p < kPixels; ++p) own.push(p, windows[p], 8 * (lead + own.first[p]));
      lead = (lead + step) & (Piece::kBytes - 1);
      ++own.have;
#pragma unroll 1
      while (own.waits()) {
        if (own.make(call, rows, count, outputs)) return;
      }
    }
  }

  // Where windows lie too far apart: through rows that a thread reads itself, up to row `end`.
  static void alone(const MapsCall& call, Columns& own, const RowBytes& source, int end, const Row* rows, int count,
                    const To* outputs) {
    if (own.owned <= 0) return;
    own.row = rows[0];
    const int begin = static_cast<int>(source.first - source.begin), length = static_cast<int>(call.x.in_size) * kChannels;
#pragma unroll 1
    while (own.have < end) {
      const uint8_t* const row = source.begin + own.have * source.step;
#pragma unroll
      for (int p = 0; p < kPixels; ++p) {
        typename Columns::Window window;
#pragma unroll
        for (int w = 0; w < kRead; ++w) window.words[w] = word_within(row, begin + own.first[p] + 4 * w, length);
        own.push(p, window, 0);
      }
      ++own.have;
#pragma unroll 1
      while (own.waits()) {
        if (own.make(call, rows, count, outputs)) return;
      }
    }
  }
};

// The same for calls of kX and kY taps at most, of several sizes: those of few have a walk of their own.
template <class Load, class Store, int kX, int kY, int kChannels, int kPixels, int kStores, bool kBordered, int kRows,
          int kBuffers, int kStrip, int kThreads>
struct ByteStages {
  template <int kOwnX, int kOwnY>
  using Stage = ByteStage<Load, Store, kOwnX, kOwnY, kChannels, kPixels, kStores, kBordered, kRows, kBuffers, kStrip, kThreads>;

  static void run(const MapsCall& call, const Block& block) {
    if (call.x.taps <= kFewTaps && call.y.taps <= kFewTaps) {
      Stage<kFewTaps, kFewTaps>::run(call, block);
    } else {
      Stage<kX, kY>::run(call, block);
    }
  }

 private:
  static constexpr int kFewTaps = 4;  // `FEW_TAPS` of ways.py
};

}  // namespace polyphase
