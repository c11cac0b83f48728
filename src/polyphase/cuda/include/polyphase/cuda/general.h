// Any taps along up to three axes, any strides: an output per thread, all its taps at once.
#pragma once

#include "polyphase/cuda/block.h"
#include "polyphase/cuda/sums.h"
#include "polyphase/cuda/vectors.h"

namespace polyphase {

// Rows are walked along with z between y and the planes. kWeighted: some axis has weights. call.strip: 1 where x and y have
// windows that are summed down columns first, as those of shrink.h are; else 0.
template <class Load, class Store, class Sum, bool kWeighted, bool kBordered, int kThreads>
struct General {

  static void run(const MapsCall& call, const Block& block) {
    const int64_t length = call.x.out_size * call.channels;
    each_part(block, call.z.out_size * call.y.out_size, call.planes, [&](int64_t row, int64_t plane) {
      const Divided by_row = divided(row, call.y.out_size);
      const int64_t y = by_row.remainder, z = by_row.quotient;
      Place place = row_place(call, plane_place(call, plane), y);
      place.target += z * call.z.out_stride;
      for (int t = 0; t < kTensors; ++t) place.tensors[t] += z * call.tensor_strides[t].z;
      place.border = greater(place.border, greater(border_at(call.y, y), border_at(call.z, z)));
      block.each_thread([&](int thread) {
        const int64_t element = int64_t(block.place().x) * kThreads + thread;
        const Divided at = divided(element, call.channels);
        if (element < length) output(call, place, z, y, at.quotient, at.remainder);
      });
    });
  }

 private:
  // Whether x and y have windows of weights, and z is not mapped.
  static bool by_windows(const MapsCall& call) {
    return call.z.out_size == 1 && call.z.first == nullptr && call.x.index == nullptr && call.x.weight != nullptr &&
           call.y.index == nullptr && call.y.weight != nullptr;
  }

  static void output(const MapsCall& call, const Place& row, int64_t z, int64_t y, int64_t x, int64_t c) {
    const int32_t border = kBordered ? greater(row.border, border_at(call.x, x)) : 0;
    typename Sum::Value sum{};
    if (border == 0) {
      const int64_t channel = channel_of(call, row.channel, c);
      const int64_t source = row.source + c * call.in_channel_stride;
      if constexpr (kWeighted) {
        sum = !by_windows(call)   ? whole_sum<Load, Sum>(call, source, channel, z, y, x)
              : call.strip == 0 ? window_sum<Load, Sum>(call, source, channel, y, x)
                                : column_sum<Load, Sum>(call, source, channel, y, x);
      } else {
        sum = whole_sum<Load, Sum>(call, source, channel, z, y, x);
      }
    }
    auto* target = static_cast<typename Store::To*>(call.target) + row.target;
    target[x * call.x.out_stride + c * call.out_channel_stride] =
        finished<Store, kBordered>(call, row, x, c, border, Sum::stored(sum));
  }
};

}  // namespace polyphase
