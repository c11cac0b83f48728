// Bytes through windows of some taps: a few rows at a time are staged in shared memory as planes of bytes, read four at
// once. A thread owns an output column: it sums its window of every staged row by pairs of 16 bit weights, rounds, and
// keeps the latest rows in a ring of registers, which outputs are summed from.
#pragma once

#include "polyphase/cuda/block.h"
#include "polyphase/cuda/byte_pairs.h"
#include "polyphase/cuda/sums.h"

namespace polyphase {

// kWords: words of a window along x. kRows: rows staged at once. Rows of y's table begin at inputs that do not descend,
// and so do those of x. A block makes kThreads / kChannels pixels of call.strip rows, of call.span staged pixels, a
// multiple of 4.
template <class Load, class Store, int kWords, int kY, int kChannels, bool kByWords, bool kBordered, int kRows,
          int kThreads>
struct ByteRing {
  static constexpr int kTensors = Store::kTensors;
  static constexpr int kPixels = kThreads / kChannels;
  using Sum = ByteSum;
  using Rows = StagedRows<Load, kTensors, kChannels, kByWords, kThreads>;

  struct Shared {
    int32_t* weight;  // call.strip rows of kY
    int32_t* first;   // call.strip
    uint8_t* staged;  // [row][channel][span]

    Shared(const MapsCall& call, uint8_t* memory) {
      weight = reinterpret_cast<int32_t*>(memory);
      first = weight + call.strip * kY;
      staged = reinterpret_cast<uint8_t*>(first + call.strip);
    }
  };

  struct State {
    Column at;
    bool inside;
    int plane;             // where a staged row has the thread's channel and window, in words
    uint32_t pairs[2 * kWords];
    int32_t ring[kY];
    int have, next;        // the row that comes next, and the output that waits for it
  };

  static void run(const MapsCall& call, const Block& block) {
    const Shared shared(call, block.shared());
    each_part(block, call.strips, call.planes, [&](int64_t strip, int64_t of_plane) {
      const int64_t y = strip * call.strip;
      const int rows = static_cast<int>(call.y.out_size - y < call.strip ? call.y.out_size - y : call.strip);
      const Place<kTensors> place = row_place<kTensors>(call, plane_place<kTensors>(call, of_plane), y);
      const int x = block.place().x * kPixels, origin = call.x.first[x];
      const int begin = call.y.first[y], end = call.y.first[y + rows - 1] + kY;
      States<State, kThreads> states;
      block.each_thread([&](int thread) {
        const auto* weight = static_cast<const int32_t*>(call.y.weight) + y * kY;
        for (int i = thread; i < rows * kY; i += kThreads) shared.weight[i] = weight[i];
        for (int i = thread; i < rows; i += kThreads) shared.first[i] = call.y.first[y + i];
        begin_column(call, states.of(thread), x, origin, begin, thread);
      });
      for (int row = begin; row < end; row += kRows) {
        const int count = end - row < kRows ? end - row : kRows;
        block.each_thread([&](int thread) {
          Rows::template stage<kRows>(call, place, shared.staged, row, count, origin, thread);
        });
        block.each_thread([&](int thread) {
          State& state = states.of(thread);
          if (state.inside) walk(call, shared, place, state, y, rows, count);
        });
      }
    });
  }

 private:
  static void begin_column(const MapsCall& call, State& state, int x, int origin, int begin, int thread) {
    const int o = thread / kChannels, c = thread - o * kChannels;
    state.inside = o < kPixels && x + o < call.x.out_size;
    state.at = {x + (state.inside ? o : 0), c};
    state.plane = (c * static_cast<int>(call.span) + call.x.first[state.at.x] - origin) / 4;
    const auto* pairs = static_cast<const uint32_t*>(call.x.weight) + int64_t(state.at.x) * (2 * kWords);
#pragma unroll
    for (int i = 0; i < 2 * kWords; ++i) state.pairs[i] = pairs[i];
#pragma unroll
    for (int k = 0; k < kY; ++k) state.ring[k] = 0;
    state.have = begin;
    state.next = 0;
  }

  static void walk(const MapsCall& call, const Shared& shared, const Place<kTensors>& place, State& state, int64_t y,
                   int rows, int count) {
    const auto* window = reinterpret_cast<const uint32_t*>(shared.staged) + state.plane;
    const int step = kChannels * static_cast<int>(call.span) / 4;
#pragma unroll 1
    for (int r = 0; r < count; ++r, window += step) {
      int32_t sum = 0;
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        const uint32_t bytes = window[w];
        sum = add_pair<false>(sum, state.pairs[2 * w], bytes);
        sum = add_pair<true>(sum, state.pairs[2 * w + 1], bytes);
      }
#pragma unroll
      for (int k = 0; k + 1 < kY; ++k) state.ring[k] = state.ring[k + 1];
      state.ring[kY - 1] = Sum::rounded(sum, call.x.precision);
      ++state.have;
#pragma unroll 1
      while (state.next < rows && shared.first[state.next] + kY == state.have) {
        output(call, shared, place, state, y);
        ++state.next;
      }
    }
  }

  static void output(const MapsCall& call, const Shared& shared, const Place<kTensors>& place, const State& state,
                     int64_t y) {
    const int i = state.next;
    int32_t sum = 0;
#pragma unroll
    for (int k = 0; k < kY; ++k) sum = Sum::add(sum, shared.weight[i * kY + k], state.ring[k]);
    sum = Sum::rounded(sum, call.y.precision);
    const Column at = state.at;
    int32_t border = 0;
    if (kBordered) border = greater(greater(place.border, border_at(call.y, y + i)), border_at(call.x, at.x));
    Place<kTensors> row = place;
    row.target += i * call.y.out_stride;
    for (int t = 0; t < kTensors; ++t) row.tensors[t] += i * call.tensor_strides[t].y;
    auto* target = static_cast<typename Store::To*>(call.target) + row.target;
    target[at.x * call.x.out_stride + at.c * call.out_channel_stride] =
        finished<Store, kBordered>(call, row, at.x, at.c, border, Sum::stored(sum));
  }
};

}  // namespace polyphase
