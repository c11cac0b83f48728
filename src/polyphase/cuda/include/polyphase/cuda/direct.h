// Windows of few taps along y and x, a few outputs per thread, all their inputs fetched at once: for small images, which
// have too few columns to fill a GPU with any other way.
#pragma once

#include "polyphase/cuda/block.h"
#include "polyphase/cuda/sums.h"
#include "polyphase/cuda/vectors.h"

namespace polyphase {

// kRows: outputs of a thread, one below the other, whose windows along y are one of kY taps: where it begins, the table has
// for the first of them, and it has weights for as many rows as threads make. kChannels: elements of a pixel, and kStep: from
// one pixel of a row to the next; 0 where only the call knows.
template <class Load, class Store, class Sum, int kX, int kY, int kChannels, int kStep, int kRows, bool kBordered,
          int kThreads>
struct Direct {
  using From = typename Load::From;
  using Value = typename Sum::Value;
  using Weight = typename Sum::Weight;

  static void run(const MapsCall& call, const Block& block) {
    each_part(block, (call.y.out_size + kRows - 1) / kRows, call.planes, [&](int64_t part, int64_t plane) {
      const Place place = plane_place(call, plane);
      block.each_thread([&](int thread) {
        const int channels = kChannels > 0 ? kChannels : static_cast<int>(call.channels);
        const int32_t element = block.place().x * kThreads + thread, x = element / channels;
        const auto width = static_cast<int32_t>(call.x.out_size);
        if (x < width) outputs(call, place, static_cast<int>(part) * kRows, {x, element - x * channels});
      });
    });
  }

 private:
  static void outputs(const MapsCall& call, const Place& plane, int y, Column at) {
    const int stop = static_cast<int>(call.y.out_size);
    const int64_t channel = channel_of(call, plane.channel, at.c), origin = plane.source + at.c * call.in_channel_stride;
    From read[kY][kX];
    fetch(call, static_cast<const From*>(call.source) + origin, y, at, read);
    Weight along_x[kX], along_y[kRows][kY];
    weigh(call, y, at, along_x, along_y);
    Value of_rows[kY];
#pragma unroll
    for (int ky = 0; ky < kY; ++ky) {
      Value of_row = Sum::start(call.x.precision);
#pragma unroll
      for (int kx = 0; kx < kX; ++kx) {
        of_row = Sum::add(of_row, along_x[kx], Sum::value(Load::apply(read[ky][kx], call, channel)));
      }
      of_rows[ky] = Sum::rounded(of_row, call.x.precision);
    }
    Value spoilt = 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      Value sum = Sum::start(call.y.precision);
#pragma unroll
      for (int ky = 0; ky < kY; ++ky) sum = Sum::add(sum, along_y[r][ky], of_rows[ky]);
      sum = Sum::rounded(sum, call.y.precision);
      spoilt = Sum::spoilt(spoilt, sum);
      if (y + r < stop) store(call, plane, y + r, at, sum);
    }
    if (spoilt != 0) {
#pragma unroll 1
      for (int r = y; r < y + kRows && r < stop; ++r) {
        store(call, plane, r, at, whole_sum<Load, Sum>(call, origin, channel, 0, r, at.x));
      }
    }
  }

  static void fetch(const MapsCall& call, const From* source, int y, Column at, From (&read)[kY][kX]) {
    const int step = kStep > 0 ? kStep : static_cast<int>(call.x.in_stride);
    const From* window = source + call.x.first[at.x] * step + call.y.first[y] * call.y.in_stride;
#pragma unroll
    for (int ky = 0; ky < kY; ++ky, window += call.y.in_stride) {
#pragma unroll
      for (int kx = 0; kx < kX; ++kx) read[ky][kx] = window[kx * step];
    }
  }

  static void weigh(const MapsCall& call, int y, Column at, Weight (&along_x)[kX], Weight (&along_y)[kRows][kY]) {
#pragma unroll
    for (int kx = 0; kx < kX; ++kx) along_x[kx] = static_cast<const Weight*>(call.x.weight)[at.x * kX + kx];
    // Tables begin at multiples of 16 bytes.
    constexpr int kAtOnce = 16 / sizeof(Weight), kCount = kRows * kY, kVector = kCount % kAtOnce == 0 ? kAtOnce : 1;
    const auto* weights = reinterpret_cast<const Vector<Weight, kVector>*>(static_cast<const Weight*>(call.y.weight) + y * kY);
#pragma unroll
    for (int i = 0; i < kCount / kVector; ++i) {
      const Vector<Weight, kVector> some = weights[i];
#pragma unroll
      for (int j = 0; j < kVector; ++j) along_y[(i * kVector + j) / kY][(i * kVector + j) % kY] = some.items[j];
    }
  }

  static void store(const MapsCall& call, const Place& plane, int y, Column at, Value sum) {
    const Place row = row_place(call, plane, y);
    int32_t border = 0;
    if (kBordered) border = greater(row.border, greater(border_at(call.y, y), border_at(call.x, at.x)));
    auto* target = static_cast<typename Store::To*>(call.target) + row.target;
    target[at.x * call.x.out_stride + at.c * call.out_channel_stride] =
        finished<Store, kBordered>(call, row, at.x, at.c, border, Sum::stored(sum));
  }
};

}  // namespace polyphase
