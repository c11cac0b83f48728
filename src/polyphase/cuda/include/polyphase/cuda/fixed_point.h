// Sums of an image's gradient in integers, which are the same in any order.
//
// A plane's gradients are scaled by a power of two, so that the sum of all of them fits into 63 bits, and rounded to
// integers: some 2^-47 of the largest is lost of each, far less than floats lose. Doubles have a second integer for what the
// first leaves. What is not finite has no place in integers: it is added afterwards, to the floats (`kAddWhatIsNotFinite`),
// where no order matters either.
#pragma once

#include "polyphase/cuda/atomics.h"
#include "polyphase/cuda/block.h"
#include "polyphase/cuda/warp_taps.h"

namespace polyphase {

// Of a plane of the output's gradient: the largest magnitude among those that are finite, as the bits of a double, and
// whether there are others.
struct Largest {
  uint64_t finite, others;
};

template <class P>
inline bool is_finite(P x) {
  return x * 0 == 0;
}

// How a plane's gradients become integers.
struct FixedPoint {
  double scale, unit;  // unit * scale == 1
  double rest;         // what the second integer counts: 1 / rest of the first one's unit

  // Taps of one pixel weigh less than 2 in all.
  FixedPoint(const WarpCall& call, int64_t plane) {
    const Largest largest = static_cast<const Largest*>(call.vectors[1])[plane];
    const auto bits = static_cast<int>(call.sum_bits);
    const int exponent = static_cast<int>(largest.finite >> 52) - 1022;  // the largest is less than 2^exponent
    const int shift = 61 - bits - (exponent > -900 ? exponent : -900);
    scale = power_of_two(shift);
    unit = power_of_two(-shift);
    rest = power_of_two(61 - bits);
  }

 private:
  static double power_of_two(int exponent) { return __builtin_bit_cast(double, static_cast<uint64_t>(exponent + 1023) << 52); }
};

// The largest magnitude of every plane: a block goes over some rows of one.
template <class Load, class Store, class Filter, class G, class P, int kAxes, class Formula, int kRows, int kThreads>
struct FindLargest {
  using From = typename Load::From;

  static void run(const WarpCall& call, const Block& block) {
    auto* found = reinterpret_cast<Largest*>(block.shared());
    const auto rows = row_count<kAxes>(call);
    each_part(block, call.strips, call.batch * call.channels, [&](int64_t strip, int64_t plane) {
      const Divided at = divided(plane, call.channels);
      block.each_thread([&](int thread) {
        Largest most = {0, 0};
        for (int r = 0; r < kRows && strip * kRows + r < rows; ++r) {
          const OutputPixel first = output_pixel<kAxes>(call, static_cast<RowNumber<kAxes>>(strip * kRows + r), 0);
          const ImageStrides& s = call.target_strides;
          const From* row = static_cast<const From*>(call.target) + at.quotient * s.batch + at.remainder * s.channel + offset_in<kAxes, int64_t>(s, first);
          for (int32_t x = thread; x < call.out_size[2]; x += kThreads) {
            const double value = abs(static_cast<double>(Load::apply(row[x * s.x], call, 0)));
            if (is_finite(value)) {
              most.finite = max(most.finite, __builtin_bit_cast(uint64_t, value));
            } else {
              most.others = 1;
            }
          }
        }
        found[thread] = most;
      });
      for (int half = kThreads / 2; half > 0; half /= 2) {
        block.each_thread([&](int thread) {
          if (thread >= half) return;
          found[thread].finite = max(found[thread].finite, found[thread + half].finite);
          found[thread].others |= found[thread + half].others;
        });
      }
      block.each_thread([&](int thread) {
        if (thread > 0) return;
        auto* largest = static_cast<Largest*>(const_cast<void*>(call.vectors[1].known())) + plane;
        raise_to(&largest->finite, found[0].finite);
        if (found[0].others != 0) raise_to(&largest->others, 1);
      });
    });
  }
};

// From sums of integers to those of floats: dense planes of the image's gradient.
template <class Load, class Store, class Filter, class G, class P, int kAxes, class Formula, int kThreads>
struct ToFloats {
  static void run(const WarpCall& call, const Block& block) {
    const int64_t size = call.in_size[0] * call.in_size[1] * call.in_size[2], planes = call.batch * call.channels;
    const auto* sums = static_cast<const int64_t*>(call.tensors[0]);
    each_part(block, 1, planes, [&](int64_t, int64_t plane) {
      const FixedPoint fixed(call, plane);
      block.each_thread([&](int thread) {
        for (int64_t i = int64_t(block.place().x) * kThreads + thread; i < size; i += int64_t(block.count().x) * kThreads) {
          double sum = static_cast<double>(sums[plane * size + i]);
          if (sizeof(P) == 8) sum += static_cast<double>(sums[(planes + plane) * size + i]) / fixed.rest;
          static_cast<P*>(call.target)[plane * size + i] = static_cast<P>(sum * fixed.unit);
        }
      });
    });
  }
};

}  // namespace polyphase
