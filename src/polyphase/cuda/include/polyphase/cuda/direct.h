// Windows of few taps along y and x, a few outputs per thread, all their inputs fetched at once: for small images, which
// have too few columns to fill a GPU with any other way.
#pragma once

#include "polyphase/cuda/block.h"
#include "polyphase/cuda/sums.h"

namespace polyphase {

// kStep: elements from one pixel of a row to the next, 0 where only the call knows. kRows: outputs of a thread, one below
// the other.
template <class Load, class Store, class Sum, int kX, int kY, int kStep, int kRows, bool kBordered, int kThreads>
struct Direct {
  using From = typename Load::From;
  using Value = typename Sum::Value;
  using Weight = typename Sum::Weight;

  static void run(const MapsCall& call, const Block& block) {
    each_part(block, (call.y.out_size + kRows - 1) / kRows, call.planes, [&](int64_t part, int64_t plane) {
      const Place place = plane_place(call, plane);
      block.each_thread([&](int thread) {
        const int32_t element = block.place().x * kThreads + thread;
        const auto length = static_cast<int32_t>(call.x.out_size * call.channels);
        if (element < length) outputs(call, place, static_cast<int>(part) * kRows, column_at(call, element));
      });
    });
  }

 private:
  static void outputs(const MapsCall& call, const Place& plane, int y, Column at) {
    const int last = static_cast<int>(call.y.out_size) - 1;
    const int64_t channel = channel_of(call, plane.channel, at.c), origin = plane.source + at.c * call.in_channel_stride;
    From read[kRows][kY][kX];
    Weight along_x[kX], along_y[kRows][kY];
    fetch(call, static_cast<const From*>(call.source) + origin, y, last, at, read);
    weigh(call, y, last, at, along_x, along_y);
    Value spoilt = 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      Value sum = Sum::start(call.y.precision);
#pragma unroll
      for (int ky = 0; ky < kY; ++ky) {
        Value of_row = Sum::start(call.x.precision);
#pragma unroll
        for (int kx = 0; kx < kX; ++kx) {
          of_row = Sum::add(of_row, along_x[kx], Sum::value(Load::apply(read[r][ky][kx], call, channel)));
        }
        sum = Sum::add(sum, along_y[r][ky], Sum::rounded(of_row, call.x.precision));
      }
      sum = Sum::rounded(sum, call.y.precision);
      spoilt = Sum::spoilt(spoilt, sum);
      if (y + r <= last) store(call, plane, y + r, at, sum);
    }
    if (spoilt != 0) {
#pragma unroll 1
      for (int r = y; r < y + kRows && r <= last; ++r) {
        store(call, plane, r, at, whole_sum<Load, Sum>(call, origin, channel, 0, r, at.x));
      }
    }
  }

  // Rows beyond the last stand for it.
  static void fetch(const MapsCall& call, const From* source, int y, int last, Column at, From (&read)[kRows][kY][kX]) {
    const int step = kStep > 0 ? kStep : static_cast<int>(call.x.in_stride);
    source += call.x.first[at.x] * step;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const From* window = source + call.y.first[y + r < last ? y + r : last] * call.y.in_stride;
#pragma unroll
      for (int ky = 0; ky < kY; ++ky, window += call.y.in_stride) {
#pragma unroll
        for (int kx = 0; kx < kX; ++kx) read[r][ky][kx] = window[kx * step];
      }
    }
  }

  static void weigh(const MapsCall& call, int y, int last, Column at, Weight (&along_x)[kX], Weight (&along_y)[kRows][kY]) {
#pragma unroll
    for (int kx = 0; kx < kX; ++kx) along_x[kx] = static_cast<const Weight*>(call.x.weight)[at.x * kX + kx];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const Weight* weight = static_cast<const Weight*>(call.y.weight) + (y + r < last ? y + r : last) * kY;
#pragma unroll
      for (int ky = 0; ky < kY; ++ky) along_y[r][ky] = weight[ky];
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
