// A large shrink of floats: every input is read once, side by side. Threads own input columns and sum along y, for a few
// output rows at a time, into shared memory; from there rows are summed along x.
#pragma once

#include "polyphase/cuda/block.h"
#include "polyphase/cuda/sums.h"
#include "polyphase/cuda/vectors.h"

namespace polyphase {

// kAligned: rows of the source begin at multiples of kWidth elements and are such multiples long. A block makes call.tile
// pixels of call.strip rows, from at most call.span elements of call.staged_rows rows for kRows output rows.
template <class Load, class Store, class Sum, bool kAligned, bool kBordered, int kThreads>
struct Shrink {
  static constexpr int kRows = 4;
  static constexpr int kWidth = 4;
  using From = typename Load::From;
  using Value = typename Sum::Value;
  using Weight = typename Sum::Weight;

  // The parts of shared memory, one behind the other.
  struct Shared {
    Value* rows;         // kRows of call.span
    Weight* along_y;     // call.staged_rows of kRows
    Weight* along_x;     // call.x.taps of call.tile
    int32_t* first;      // call.tile

    Shared(const MapsCall& call, uint8_t* memory) {
      rows = reinterpret_cast<Value*>(memory);
      along_y = rows + kRows * call.span;
      along_x = along_y + kRows * call.staged_rows;
      first = reinterpret_cast<int32_t*>(along_x + call.x.taps * call.tile);
    }
  };

  static void run(const MapsCall& call, const Block& block) {
    const Shared shared(call, block.shared());
    each_part(block, call.strips, call.planes, [&](int64_t strip, int64_t of_plane) {
      const int64_t x = block.place().x * call.tile;
      const int pixels = static_cast<int>(call.x.out_size - x < call.tile ? call.x.out_size - x : call.tile);
      const Place plane = plane_place(call, of_plane);
      const int64_t origin = call.x.first[x] * call.channels / kWidth * kWidth;  // the first element that is staged
      const int64_t end = (call.x.first[x + pixels - 1] + call.x.taps) * call.channels;
      block.each_thread([&](int thread) {
        for (int i = thread; i < pixels * call.x.taps; i += kThreads) {
          const int o = i / static_cast<int>(call.x.taps), k = i - o * static_cast<int>(call.x.taps);
          shared.along_x[k * call.tile + o] = static_cast<const Weight*>(call.x.weight)[x * call.x.taps + i];
        }
        for (int o = thread; o < pixels; o += kThreads) {
          shared.first[o] = static_cast<int32_t>(call.x.first[x + o] * call.channels - origin);
        }
      });
      const int64_t stop = (strip + 1) * call.strip < call.y.out_size ? (strip + 1) * call.strip : call.y.out_size;
      for (int64_t y = strip * call.strip; y < stop; y += kRows) {
        const int rows = static_cast<int>(stop - y < kRows ? stop - y : kRows);
        const int64_t top = call.y.first[y], staged = call.y.first[y + rows - 1] + call.y.taps - top;
        block.each_thread([&](int thread) { weigh_rows(call, shared, y, rows, top, staged, thread); });
        block.each_thread([&](int thread) {
          for (int64_t q = thread; q < (end - origin + kWidth - 1) / kWidth; q += kThreads) {
            sum_along_y(call, shared, plane, origin + q * kWidth, q * kWidth, top, staged);
          }
        });
        block.each_thread([&](int thread) {
          const int per_row = pixels * static_cast<int>(call.channels);
          for (int i = thread; i < per_row * rows; i += kThreads) {
            const int row = i / per_row;
            output(call, shared, row_place(call, plane, y + row), y + row, row, x, i - row * per_row);
          }
        });
      }
    });
  }

 private:
  static void weigh_rows(const MapsCall& call, const Shared& shared, int64_t y, int rows, int64_t top, int64_t staged,
                         int thread) {
    for (int64_t i = thread; i < staged * kRows; i += kThreads) {
      const int row = static_cast<int>(i % kRows);
      const int64_t at = y + (row < rows ? row : rows - 1), k = top + i / kRows - call.y.first[at];
      const bool reads = k >= 0 && k < call.y.taps;
      shared.along_y[i] = reads ? static_cast<const Weight*>(call.y.weight)[at * call.y.taps + k] : Weight(0);
    }
  }

  static void sum_along_y(const MapsCall& call, const Shared& shared, const Place& plane, int64_t element,
                          int64_t place, int64_t top, int64_t staged) {
    const int64_t left = call.x.in_size * call.channels - element;
    const From* source =
        static_cast<const From*>(call.source) + plane.source + top * call.y.in_stride + element;
    Value sums[kRows][kWidth] = {};
    int64_t channels[kWidth];
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
      const int64_t c = Load::kReadsChannel && call.channels > 1 ? (element + e) % call.channels : 0;
      channels[e] = channel_of(call, plane.channel, c);
    }
#pragma unroll 8
    for (int row = 0; row < staged; ++row, source += call.y.in_stride) {
      const Vector<From, kWidth> read = polyphase::read<kAligned, kWidth>(source, left);
      const Vector<Weight, kRows> weight = *reinterpret_cast<const Vector<Weight, kRows>*>(shared.along_y + row * kRows);
#pragma unroll
      for (int e = 0; e < kWidth; ++e) {
        const Value value = Sum::value(Load::apply(read.items[e], call, channels[e]));
#pragma unroll
        for (int r = 0; r < kRows; ++r) sums[r][e] = Sum::add(sums[r][e], weight.items[r], value);
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int e = 0; e < kWidth; ++e) shared.rows[r * call.span + place + e] = sums[r][e];
    }
  }

  static void output(const MapsCall& call, const Shared& shared, const Place& place, int64_t y, int row,
                     int64_t x, int element) {
    const Column in_tile = column_at(call, element), at = {static_cast<int32_t>(x) + in_tile.x, in_tile.c};
    const Value* window = shared.rows + row * call.span + shared.first[in_tile.x] + at.c;
    Value sum = 0;
    for (int k = 0; k < call.x.taps; ++k) {
      sum = Sum::add(sum, shared.along_x[k * call.tile + in_tile.x], window[k * call.channels]);
    }
    if (Sum::spoilt(0, sum) != 0) {
      sum = whole_sum<Load, Sum>(call, place.source + at.c, channel_of(call, place.channel, at.c), 0, y, at.x);
    }
    int32_t border = 0;
    if (kBordered) border = greater(greater(place.border, border_at(call.y, y)), border_at(call.x, at.x));
    auto* target = static_cast<typename Store::To*>(call.target) + place.target;
    target[at.x * call.x.out_stride + at.c * call.out_channel_stride] =
        finished<Store, kBordered>(call, place, at.x, at.c, border, Sum::stored(sum));
  }
};

}  // namespace polyphase
