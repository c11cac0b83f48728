// Bytes through windows of many taps: some rows at a time are staged in shared memory as planes of bytes, read four at
// once. A thread owns an output column: it sums its window of every staged row by pairs of weights, rounds, and keeps the
// latest as bytes, which outputs are summed from.
//
// Windows begin at multiples of 4 pixels, as `in_fours` of launch/device_tables.h makes them, and may reach over the end of a row, with
// weights of 0.
#pragma once

#include "polyphase/cuda/block.h"
#include "polyphase/cuda/byte_pairs.h"

namespace polyphase {

// kWords: words of a window along x. kByWords: rows begin at multiples of 4 bytes, and pixels lie side by side. kRows:
// rows staged at once. Rows of y's table begin at inputs that do not descend, and so do those of x. A block makes
// kThreads / kChannels pixels of kStrip rows, of call.span staged pixels, a multiple of 4.
template <class Load, class Store, int kWords, int kY, int kChannels, bool kByWords, bool kBordered, int kRows,
          int kStrip, int kThreads>
struct ByteRing {
  static constexpr int kPixels = kThreads / kChannels;
  static constexpr int kFetched = kChannels > 2 && kRows % 8 == 0 ? 8 : kRows;  // rows that a thread reads at once
  using From = typename Load::From;
  using Kept = ByteColumn<kY>;
  using Row = typename Kept::Row;

  struct State {
    Column at;
    bool inside;
    int plane;  // where a staged row has the thread's channel and window, in words
    uint32_t pairs[2 * kWords];
    Kept kept;
    int have, next;  // the input row that comes next, and the output row that waits for it
  };

  static void run(const MapsCall& call, const Block& block) {
    Row* const of_rows = reinterpret_cast<Row*>(block.shared());      // kStrip
    auto* const staged = reinterpret_cast<uint8_t*>(of_rows + kStrip);  // [row][channel][span]
    each_part(block, call.strips, call.planes, [&](int64_t strip, int64_t of_plane) {
      const int64_t y = strip * kStrip;
      const int rows = static_cast<int>(call.y.out_size - y < kStrip ? call.y.out_size - y : kStrip);
      const Place place = row_place(call, plane_place(call, of_plane), y);
      const int x = block.place().x * kPixels, origin = call.x.first[x];
      const int begin = call.y.first[y], end = call.y.first[y + rows - 1] + kY;
      States<State, kThreads> states;
      block.each_thread([&](int thread) {
        stage_rows<kY, kBordered, kThreads, int32_t>(call, of_rows, y, rows, thread, Kept::weigh);
        begin_column(call, states.of(thread), x, origin, begin, thread);
      });
      for (int row = begin; row < end; row += kRows) {
        const int count = end - row < kRows ? end - row : kRows;
        block.each_thread([&](int thread) { stage(call, place, staged, row, count, origin, thread); });
        block.each_thread([&](int thread) {
          State& state = states.of(thread);
          if (state.inside) walk(call, of_rows, staged, place, state, rows, count);
        });
      }
    });
  }

 private:
  // ---- rows of the source as planes of bytes

  // Rows [row, row + count) from pixel `origin` on; what lies behind a row's end is 0.
  static void stage(const MapsCall& call, const Place& plane, uint8_t* staged, int row, int count, int origin,
                    int thread) {
    const int quads = static_cast<int>(call.span / 4);
    const From* source = static_cast<const From*>(call.source) + plane.source + row * call.y.in_stride;
    for (int quad = thread; quad < quads; quad += kThreads) {
      const int x = origin + quad * 4;
      uint8_t* target = staged + quad * 4;
      if (kByWords && call.x.in_size - x >= 4) {
#pragma unroll
        for (int r = 0; r < kRows; r += kFetched) {
          const From* const pixels = source + int64_t(x) * kChannels;
          if (r + kFetched <= count) {
            by_words<true>(call, plane, pixels, target, r, count);
          } else if (r < count) {
            by_words<false>(call, plane, pixels, target, r, count);
          }
        }
      } else {
#pragma unroll 1
        for (int r = 0; r < count; ++r) {
          one_by_one(call, plane, source + r * call.y.in_stride, x, target + r * kChannels * call.span);
        }
      }
    }
  }

  // Four pixels of rows [r, r + kFetched); those from `count` on stand for the last one. kAll: there are none such.
  template <bool kAll>
  static void by_words(const MapsCall& call, const Place& plane, const From* source, uint8_t* target, int r, int count) {
    uint32_t words[kFetched][kChannels];
    const From* from = source + r * call.y.in_stride;
#pragma unroll
    for (int i = 0; i < kFetched; ++i) {
      if (i > 0 && (kAll || r + i < count)) from += call.y.in_stride;
#pragma unroll
      for (int w = 0; w < kChannels; ++w) words[i][w] = reinterpret_cast<const uint32_t*>(from)[w];
    }
#pragma unroll
    for (int i = 0; i < kFetched; ++i) {
      uint32_t planes[kChannels];
      spread(call, plane, words[i], planes);
#pragma unroll
      for (int c = 0; c < kChannels; ++c) {
        *reinterpret_cast<uint32_t*>(target + ((r + i) * kChannels + c) * call.span) = planes[c];
      }
    }
  }

  // Four pixels: of every channel a word.
  static void spread(const MapsCall& call, const Place& plane, const uint32_t (&words)[kChannels],
                     uint32_t (&planes)[kChannels]) {
    if constexpr (Load::kIsIdentity && kChannels == 1) {
      planes[0] = words[0];
    } else if constexpr (Load::kIsIdentity && kChannels == 3) {
      const uint32_t a = words[0], b = words[1], c = words[2];
      planes[0] = four_of<0, 1, 2, 5>(four_of<0, 3, 6, 6>(a, b), c);
      planes[1] = four_of<0, 1, 2, 6>(four_of<1, 4, 7, 7>(a, b), c);
      planes[2] = four_of<0, 1, 4, 7>(four_of<2, 5, 5, 5>(a, b), c);
    } else {
#pragma unroll
      for (int c = 0; c < kChannels; ++c) {
        planes[c] = 0;
#pragma unroll
        for (int p = 0; p < 4; ++p) {
          const int byte = p * kChannels + c;
          const auto value = static_cast<From>(words[byte / 4] >> (8 * (byte % 4)));
          planes[c] |= uint32_t(Load::apply(value, call, channel_of(call, plane.channel, c))) << (8 * p);
        }
      }
    }
  }

  static void one_by_one(const MapsCall& call, const Place& plane, const From* row, int x, uint8_t* staged) {
    for (int c = 0; c < kChannels; ++c) {
      uint32_t word = 0;
      for (int p = 0; p < 4 && x + p < call.x.in_size; ++p) {
        const From value = row[(x + p) * call.x.in_stride + c * call.in_channel_stride];
        word |= uint32_t(Load::apply(value, call, channel_of(call, plane.channel, c))) << (8 * p);
      }
      *reinterpret_cast<uint32_t*>(staged + c * call.span) = word;
    }
  }

  // ---- a thread's column

  static void begin_column(const MapsCall& call, State& state, int x, int origin, int begin, int thread) {
    const int o = thread / kChannels, c = thread - o * kChannels;
    state.inside = o < kPixels && x + o < call.x.out_size;
    state.at = {x + (state.inside ? o : 0), c};
    state.plane = (c * static_cast<int>(call.span) + call.x.first[state.at.x] - origin) / 4;
    const auto* pairs = static_cast<const uint32_t*>(call.x.weight) + int64_t(state.at.x) * (2 * kWords);
#pragma unroll
    for (int i = 0; i < 2 * kWords; ++i) state.pairs[i] = pairs[i];
    state.kept = {};
    state.have = begin;
    state.next = 0;
  }

  static void walk(const MapsCall& call, const Row* of_rows, const uint8_t* staged, const Place& place, State& state,
                   int rows, int count) {
    const auto* window = reinterpret_cast<const uint32_t*>(staged) + state.plane;
    const int step = kChannels * static_cast<int>(call.span) / 4;
#pragma unroll 1
    for (int r = 0; r < count; ++r, window += step) {
      int32_t sum = ByteSum::start(call.x.precision);
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        const uint32_t bytes = window[w];
        sum = add_pair<false>(sum, state.pairs[2 * w], bytes);
        sum = add_pair<true>(sum, state.pairs[2 * w + 1], bytes);
      }
      state.kept.push(ByteSum::rounded(sum, call.x.precision));
      ++state.have;
#pragma unroll 1
      while (state.next < rows && of_rows[state.next].until == state.have) {
        output(call, of_rows[state.next], place, state);
        ++state.next;
      }
    }
  }

  static void output(const MapsCall& call, const Row& of_row, const Place& place, const State& state) {
    const Place row = row_place(call, place, state.next);
    auto* target = static_cast<typename Store::To*>(call.target) + row.target;
    const int32_t sum = state.kept.sum(of_row, ByteSum::start(call.y.precision));
    target[state.at.x * call.x.out_stride + state.at.c * call.out_channel_stride] =
        byte_output<Store, kBordered>(call, row, state.at, of_row.border, ByteSum::rounded(sum, call.y.precision));
  }
};

}  // namespace polyphase
