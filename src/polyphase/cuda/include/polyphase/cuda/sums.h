// How taps are summed: floats as they are, bytes by integers with a rounding after every axis.
#pragma once

#include "polyphase/core/scalar.h"
#include "polyphase/cuda/places.h"

namespace polyphase {

template <class Float>
struct FloatSum {
  using Value = Float;
  using Weight = Float;

  // A sum begins with what rounds it, and is rounded by its axis's precision.
  static Value start(int64_t) { return 0; }
  static Value add(Value sum, Weight weight, Value value) { return fused(weight, value, sum); }
  static Value rounded(Value sum, int64_t) { return sum; }
  static Value value(Float x) { return x; }
  static Float stored(Value x) { return x; }
  // Windows hold inputs of weight 0, which are not read by the map. One that is infinite or NaN makes the sum NaN, and
  // what is gathered here from sums: 0 else.
  static Value spoilt(Value so_far, Value sum) { return fused(sum, Value(0), so_far); }

 private:
  static float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
  static double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }
};

struct ByteSum {
  using Value = int32_t;
  using Weight = int32_t;

  static Value start(int64_t precision) { return (1 << static_cast<int>(precision)) >> 1; }
  static Value add(Value sum, Weight weight, Value value) { return sum + weight * value; }
  static Value rounded(Value sum, int64_t precision) {
    const int32_t nearest = sum >> static_cast<int>(precision);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    int32_t bounded;
    asm("min.relu.s32 %0, %1, 255;" : "=r"(bounded) : "r"(nearest));
    return bounded;
#else
    const int32_t least = nearest > 0 ? nearest : 0;
    return least < 255 ? least : 255;
#endif
  }
  static Value value(uint8_t x) { return x; }
  static uint8_t stored(Value x) { return static_cast<uint8_t>(x); }
  static Value spoilt(Value, Value) { return 0; }
};

// Of one tap of weight 1: values of any type, which are only moved.
template <class T>
struct OneTap {
  using Value = T;
  using Weight = int32_t;

  static Value start(int64_t) { return {}; }
  static Value add(const Value&, Weight, const Value& value) { return value; }
  static Value rounded(const Value& sum, int64_t) { return sum; }
  static Value value(const T& x) { return x; }
  static T stored(const Value& x) { return x; }
};

// The taps of output i: `weight(k)` and `input(k)` for k in [0, count).
template <class Weight>
struct TapsOf {
  const Axis& axis;
  int64_t begin, count, first;

  TapsOf(const Axis& of, int64_t i) : axis(of), begin(i), count(1), first(i) {
    if (of.first == nullptr) return;
    first = of.first[i];
    if (of.index != nullptr) {
      begin = first;
      count = of.first[i + 1] - first;
    } else if (of.weight != nullptr) {
      begin = i * of.taps;
      count = of.taps;
    }
  }
  Weight weight(int64_t k) const {
    return axis.weight == nullptr ? Weight(1) : static_cast<const Weight*>(axis.weight)[begin + k];
  }
  int64_t input(int64_t k) const { return axis.index != nullptr ? axis.index[begin + k] : first + k; }
};

// One output by all its taps, along x first, those of weight 0 left out: what every other way has to give.
template <class Load, class Sum>
POLYPHASE_SELDOM typename Sum::Value whole_sum(const MapsCall& call, int64_t source, int64_t channel, int64_t z, int64_t y,
                                     int64_t x) {
  using Weight = typename Sum::Weight;
  using Value = typename Sum::Value;
  const TapsOf<Weight> along_z(call.z, z), along_y(call.y, y), along_x(call.x, x);
  Value sum = Sum::start(call.z.precision);
  for (int64_t kz = 0; kz < along_z.count; ++kz) {
    const Weight wz = along_z.weight(kz);
    if (wz == 0) continue;
    Value of_plane = Sum::start(call.y.precision);
    for (int64_t ky = 0; ky < along_y.count; ++ky) {
      const Weight wy = along_y.weight(ky);
      if (wy == 0) continue;
      const auto* row = static_cast<const typename Load::From*>(call.source) + source +
                        along_z.input(kz) * call.z.in_stride + along_y.input(ky) * call.y.in_stride;
      Value of_row = Sum::start(call.x.precision);
      for (int64_t kx = 0; kx < along_x.count; ++kx) {
        const Weight wx = along_x.weight(kx);
        if (wx == 0) continue;
        const Value value = Sum::value(Load::apply(row[along_x.input(kx) * call.x.in_stride], call, channel));
        of_row = Sum::add(of_row, wx, value);
      }
      of_plane = Sum::add(of_plane, wy, Sum::rounded(of_row, call.x.precision));
    }
    sum = Sum::add(sum, wz, Sum::rounded(of_plane, call.y.precision));
  }
  return Sum::rounded(sum, call.z.precision);
}

// The same by windows along y and x, those of weight 0 included, unless they spoil the sum.
template <class Load, class Sum>
inline typename Sum::Value window_sum(const MapsCall& call, int64_t source, int64_t channel, int64_t y, int64_t x) {
  using Weight = typename Sum::Weight;
  using Value = typename Sum::Value;
  const int along_x = static_cast<int>(call.x.taps), along_y = static_cast<int>(call.y.taps);
  const auto* weights_x = static_cast<const Weight*>(call.x.weight) + x * along_x;
  const auto* weights_y = static_cast<const Weight*>(call.y.weight) + y * along_y;
  const auto* row = static_cast<const typename Load::From*>(call.source) + source +
                    call.y.first[y] * call.y.in_stride + call.x.first[x] * call.x.in_stride;
  Value sum = Sum::start(call.y.precision);
  for (int ky = 0; ky < along_y; ++ky, row += call.y.in_stride) {
    Value of_row = Sum::start(call.x.precision);
#pragma unroll 4
    for (int kx = 0; kx < along_x; ++kx) {
      const Value value = Sum::value(Load::apply(row[kx * call.x.in_stride], call, channel));
      of_row = Sum::add(of_row, weights_x[kx], value);
    }
    sum = Sum::add(sum, weights_y[ky], Sum::rounded(of_row, call.x.precision));
  }
  sum = Sum::rounded(sum, call.y.precision);
  if (Sum::spoilt(0, sum) != 0) sum = whole_sum<Load, Sum>(call, source, channel, 0, y, x);
  return sum;
}

// Likewise, down the columns of the window first.
template <class Load, class Sum>
inline typename Sum::Value column_sum(const MapsCall& call, int64_t source, int64_t channel, int64_t y, int64_t x) {
  using Weight = typename Sum::Weight;
  using Value = typename Sum::Value;
  const int along_x = static_cast<int>(call.x.taps), along_y = static_cast<int>(call.y.taps);
  const auto* weights_x = static_cast<const Weight*>(call.x.weight) + x * along_x;
  const auto* weights_y = static_cast<const Weight*>(call.y.weight) + y * along_y;
  const auto* column = static_cast<const typename Load::From*>(call.source) + source +
                       call.y.first[y] * call.y.in_stride + call.x.first[x] * call.x.in_stride;
  Value sum = Sum::start(call.x.precision);
  for (int kx = 0; kx < along_x; ++kx, column += call.x.in_stride) {
    Value of_column = Sum::start(call.y.precision);
#pragma unroll 4
    for (int ky = 0; ky < along_y; ++ky) {
      const Value value = Sum::value(Load::apply(column[ky * call.y.in_stride], call, channel));
      of_column = Sum::add(of_column, weights_y[ky], value);
    }
    sum = Sum::add(sum, weights_x[kx], Sum::rounded(of_column, call.y.precision));
  }
  sum = Sum::rounded(sum, call.x.precision);
  if (Sum::spoilt(0, sum) != 0) sum = whole_sum<Load, Sum>(call, source, channel, 0, y, x);
  return sum;
}

}  // namespace polyphase
