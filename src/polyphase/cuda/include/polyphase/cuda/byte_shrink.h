// Bytes through windows of many taps: a few rows at a time are staged as planes of bytes, summed along x by pairs of
// 16 bit weights, rounded to bytes again and kept; from the rows kept, outputs are summed along y.
#pragma once

#include "polyphase/cuda/block.h"
#include "polyphase/cuda/byte_pairs.h"
#include "polyphase/cuda/sums.h"
#include "polyphase/cuda/vectors.h"

namespace polyphase {

// x's weights are packed: call.x.taps is a multiple of 4, windows begin at multiples of 4 (and may reach over the end of a
// row, with weights of 0), a weight is 16 bits. kChannels: of a pixel, 0 where only the call knows. kWords: rows of the
// source begin at multiples of 4 bytes.
// A block makes call.tile pixels of call.strip rows, a group of kRows at a time; call.span: pixels staged of a row, a
// multiple of 4; call.staged_rows: how many rows, at least, a group of output rows reads.
template <class Load, class Store, int kChannels, bool kWords, bool kBordered, int kThreads>
struct ByteShrink {
  static constexpr int kTensors = Store::kTensors;
  static constexpr int kRows = 4;
  static constexpr int kStagedAtOnce = 8;
  using From = typename Load::From;
  using Sum = ByteSum;
  using Rows = StagedRows<Load, kTensors, kChannels, kWords, kThreads>;

  struct Shared {
    uint32_t* along_x;  // [word of a window][pixel][2]: pairs of weights
    int32_t* first;     // of a pixel's window: its word in a staged plane of a row
    uint8_t* staged;    // [row][channel][span]
    uint8_t* kept;      // [row % call.staged_rows][channel][pixel]: rows summed along x

    Shared(const MapsCall& call, uint8_t* memory) {
      along_x = reinterpret_cast<uint32_t*>(memory);
      first = reinterpret_cast<int32_t*>(along_x + call.x.taps / 2 * call.tile);
      staged = reinterpret_cast<uint8_t*>(first + call.tile);
      kept = staged + kStagedAtOnce * channels(call) * call.span;
    }
  };

  static void run(const MapsCall& call, const Block& block) {
    const Shared shared(call, block.shared());
    each_part(block, call.strips, call.planes, [&](int64_t strip, int64_t of_plane) {
      const int64_t x = block.place().x * call.tile;
      const int pixels = static_cast<int>(call.x.out_size - x < call.tile ? call.x.out_size - x : call.tile);
      const Place<kTensors> plane = plane_place<kTensors>(call, of_plane);
      const int origin = call.x.first[x];  // the first pixel that is staged
      block.each_thread([&](int thread) { weigh_columns(call, shared, x, pixels, origin, thread); });
      const int64_t stop = (strip + 1) * call.strip < call.y.out_size ? (strip + 1) * call.strip : call.y.out_size;
      int64_t have = call.y.first[strip * call.strip];  // rows before it are kept, as many as a group reads
      for (int64_t y = strip * call.strip; y < stop; y += kRows) {
        const int rows = static_cast<int>(stop - y < kRows ? stop - y : kRows);
        const int64_t need = call.y.first[y + rows - 1] + call.y.taps;
        if (have < call.y.first[y]) have = call.y.first[y];
        while (have < need) {
          const int count = static_cast<int>(need - have < kStagedAtOnce ? need - have : kStagedAtOnce);
          block.each_thread([&](int thread) { Rows::template stage<kStagedAtOnce>(call, plane, shared.staged, static_cast<int>(have), count, origin, thread); });
          block.each_thread([&](int thread) { sum_along_x(call, shared, have, count, pixels, thread); });
          have += count;
        }
        block.each_thread([&](int thread) {
          const int per_row = pixels * channels(call);
          for (int i = thread; i < per_row * rows; i += kThreads) {
            const int row = i / per_row;
            output(call, shared, row_place<kTensors>(call, plane, y + row), y + row, x, i - row * per_row);
          }
        });
      }
    });
  }

 private:
  static int channels(const MapsCall& call) { return kChannels > 0 ? kChannels : static_cast<int>(call.channels); }

  static void weigh_columns(const MapsCall& call, const Shared& shared, int64_t x, int pixels, int64_t origin,
                            int thread) {
    const int pairs = static_cast<int>(call.x.taps / 2);
    const auto* packed = static_cast<const uint32_t*>(call.x.weight) + x * pairs;
    for (int i = thread; i < pixels * pairs; i += kThreads) {
      const int o = i / pairs, pair = i - o * pairs;
      shared.along_x[(pair / 2 * call.tile + o) * 2 + pair % 2] = packed[i];
    }
    for (int o = thread; o < pixels; o += kThreads) {
      shared.first[o] = static_cast<int32_t>((call.x.first[x + o] - origin) / 4);
    }
  }

  static void sum_along_x(const MapsCall& call, const Shared& shared, int64_t row, int count, int pixels, int thread) {
    const int tile = static_cast<int>(call.tile), words = static_cast<int>(call.x.taps / 4);
    const int planes = count * channels(call);
    const auto slot = static_cast<uint32_t>(row), kept_rows = static_cast<uint32_t>(call.staged_rows);
    for (int i = thread; i < planes * pixels; i += kThreads) {
      const int plane = i / pixels, o = i - plane * pixels;
      const auto* bytes = reinterpret_cast<const uint32_t*>(shared.staged + plane * call.span) + shared.first[o];
      int32_t sum = 0;
      for (int w = 0; w < words; ++w) {
        const auto pairs = *reinterpret_cast<const Vector<uint32_t, 2>*>(shared.along_x + (w * tile + o) * 2);
        sum = add_pair<false>(sum, pairs.items[0], bytes[w]);
        sum = add_pair<true>(sum, pairs.items[1], bytes[w]);
      }
      const int r = plane / channels(call), c = plane - r * channels(call);
      const uint32_t kept = (slot + r) % kept_rows;
      shared.kept[(kept * channels(call) + c) * tile + o] = Sum::stored(Sum::rounded(sum, call.x.precision));
    }
  }

  static void output(const MapsCall& call, const Shared& shared, const Place<kTensors>& place, int64_t y, int64_t x,
                     int element) {
    const int o = element / channels(call), c = element - o * channels(call);
    const auto kept_rows = static_cast<uint32_t>(call.staged_rows), top = static_cast<uint32_t>(call.y.first[y]);
    const auto* weight = static_cast<const int32_t*>(call.y.weight) + y * call.y.taps;
    uint32_t kept = top % kept_rows;
    int32_t sum = 0;
    for (int k = 0; k < call.y.taps; ++k) {
      sum = Sum::add(sum, weight[k], shared.kept[(kept * channels(call) + c) * call.tile + o]);
      if (++kept == kept_rows) kept = 0;
    }
    sum = Sum::rounded(sum, call.y.precision);
    const Column at = {static_cast<int32_t>(x) + o, c};
    int32_t border = 0;
    if (kBordered) border = greater(greater(place.border, border_at(call.y, y)), border_at(call.x, at.x));
    auto* target = static_cast<typename Store::To*>(call.target) + place.target;
    target[at.x * call.x.out_stride + at.c * call.out_channel_stride] =
        finished<Store, kBordered>(call, place, at.x, at.c, border, Sum::stored(sum));
  }
};

}  // namespace polyphase
