// Bytes through windows of few taps: a thread owns neighbouring pixels and walks down a strip of rows. Of each input row it
// reads the words that its windows lie in, some rows ahead.
#pragma once

#include "polyphase/cuda/block.h"
#include "polyphase/cuda/byte_columns.h"

namespace polyphase {

// kChannels, kPixels, kStores: of `ByteColumns`. kAligned: rows begin at multiples of 4 bytes and are such multiples long.
// kAhead: rows that are fetched ahead. kStrip: rows that a block makes. Rows of y's table begin at inputs that do not
// descend.
template <class Load, class Store, int kX, int kY, int kChannels, int kPixels, bool kAligned, int kStores, int kAhead,
          bool kBordered, int kStrip, int kThreads>
struct ByteWalk {
  static_assert(Load::kIsIdentity, "bytes are summed as they lie in memory");
  using Columns = ByteColumns<Store, kX, kY, kChannels, kPixels, kStores, kBordered>;
  using To = typename Store::To;
  using Row = typename Columns::Row;
  static constexpr int kRead = Columns::kRead;
  // Bytes that the words of a window hold besides it, at most: before it, or behind it.
  static constexpr int kAround = 4 * kRead - Columns::kBytes;

  static void run(const MapsCall& call, const Block& block) {
    Row* const staged = reinterpret_cast<Row*>(block.shared());  // kStrip, and one that is read but not used
    To* const outputs = reinterpret_cast<To*>(staged + kStrip + 1);
    const auto pixels = static_cast<int32_t>(call.x.out_size);
    each_part(block, call.strips, call.planes, [&](int64_t strip, int64_t plane) {
      const int64_t y = strip * kStrip;
      const int rows = static_cast<int>(call.y.out_size - y < kStrip ? call.y.out_size - y : kStrip);
      const Place place = row_place(call, plane_place(call, plane), y);
      block.each_thread([&](int thread) {
        stage_rows<kY, kBordered, kThreads, int32_t>(call, staged, y, rows, thread, Columns::Kept::weigh);
        Columns::Outputs::template fill<kThreads>(call, place, outputs, thread);
      });
      block.each_thread([&](int thread) {
        const int32_t pixel = (block.place().x * kThreads + thread) * kPixels;
        if (pixel >= pixels) return;
        const int top = staged[0].until - kY, below = staged[rows - 1].until + kAhead;
        if (top > 0 && below < call.y.in_size && call.y.in_stride >= kAround) {
          Walk<false>(call, place, pixel, pixels - pixel, top).down(staged, rows, outputs);
        } else {
          Walk<true>(call, place, pixel, pixels - pixel, top).down(staged, rows, outputs);
        }
      });
    });
  }

 private:
  // A thread's way down a strip. The words of a window may hold bytes before its row or behind it: those of the rows next to
  // it. kAtEdge: there may be no such rows, as this one is the first or the last, or as they lie so close together that words
  // hold more than them. Then only what is in a row is read.
  template <bool kAtEdge>
  struct Walk {
    const MapsCall& call;
    Columns columns;
    const uint8_t* base;     // at a multiple of 4, and where every row's windows begin behind it, of the row that is fetched
    uint32_t at[kPixels];    // next: in 32 bits. Integers are what takes the time
    uint32_t shift[kPixels];  // of the row that is pushed next: bits before a window, which count modulo 32
    uint32_t step;           // from row to row
    int length;              // of an input row, in bytes
    typename Columns::Window next[kAhead][kPixels];
    int left;  // rows from the one that is fetched next to the last

    Walk(const MapsCall& of, const Place& place, int pixel, int count, int top) : call(of) {
      columns.begin(call, place, pixel, count, top, 0);
      const uint8_t* const source = static_cast<const uint8_t*>(call.source) + place.source + int64_t(top) * call.y.in_stride;
      const auto before = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(source) & 3);
      base = source - before;
      step = static_cast<uint32_t>(call.y.in_stride);
      length = static_cast<int>(call.x.in_size) * kChannels;
      left = static_cast<int>(call.y.in_size) - top;
#pragma unroll
      for (int p = 0; p < kPixels; ++p) {
        at[p] = before + columns.first[p];
        shift[p] = 8 * at[p];
      }
    }

    void down(const Row* rows, int count, const To* outputs) {
#pragma unroll
      for (int slot = 0; slot < kAhead; ++slot) fetch(slot);
      columns.row = rows[0];
      while (true) {
#pragma unroll
        for (int slot = 0; slot < kAhead; ++slot) {
#pragma unroll
          for (int p = 0; p < kPixels; ++p) {
            columns.push(p, next[slot][p], shift[p]);
            if (!kAligned) shift[p] += 8 * step;
          }
          fetch(slot);
          ++columns.have;
#pragma unroll 1
          while (columns.waits()) {
            if (columns.make(call, rows, count, outputs)) return;
          }
        }
      }
    }

    void fetch(int slot) {
      if (left > 0) {
#pragma unroll
        for (int p = 0; p < kPixels; ++p) {
          const int first = columns.first[p], lead = kAligned ? first & 3 : at[p] & 3, begin = first - lead;
          uint32_t(&words)[kRead] = next[slot][p].words;
          if (!kAtEdge || (begin >= 0 && begin + 4 * kRead <= length)) {
            const auto* const from = reinterpret_cast<const uint32_t*>(base + (at[p] - lead));
#pragma unroll
            for (int w = 0; w < kRead; ++w) words[w] = from[w];
          } else {
#pragma unroll
            for (int w = 0; w < kRead; ++w) words[w] = word_within(base + (at[p] - first), begin + 4 * w, length);
          }
        }
      }
#pragma unroll
      for (int p = 0; p < kPixels; ++p) at[p] += step;
      --left;
    }
  };
};

}  // namespace polyphase
