// The weighted step of an axis as tap table, made as `sampling/windows.py` makes it, for sizes never seen before.
//
// It is compiled at a user's first call: few headers, and only the innermost loops once for each filter.
#pragma once

#include <cstdint>

#include "polyphase/core/abi.h"
#include "polyphase/core/buffer.h"
#include "polyphase/core/standard.h"
#include "polyphase/taps/filters.h"
#include "polyphase/taps/ratios.h"
#include "polyphase/taps/tap_table.h"

namespace polyphase {

namespace detail {

// ATen's limit for the number of bits after the binary point of a 16 bit weight.
constexpr int32_t kMaxPrecision = 22;
// Less than 1 by more than two roundings.
constexpr double kAlmost = 1 - 0x1p-40;

// Row i reads pixel start[i] + k with weight[begin[i] + k], over total[i] if there are totals. Weights may be 0.
struct Windows {
  Buffer<int32_t> begin;
  Buffer<int32_t> start;
  Buffer<double> weight;
  Buffer<double> total;
  double peak = 0;  // the largest weight there was, also one that folding made smaller again

  Windows(int64_t rows, int64_t most_taps) : begin(rows + 1), start(rows), weight(rows * most_taps) {}

  int64_t rows() const { return start.size(); }
  int64_t taps(int64_t i) const { return begin[i + 1] - begin[i]; }
  double* row(int64_t i) { return weight.data() + begin[i]; }
  const double* row(int64_t i) const { return weight.data() + begin[i]; }

  void close_row(int64_t i, int64_t first_pixel, int64_t taps) {
    start[i] = static_cast<int32_t>(first_pixel);
    begin[i + 1] = begin[i] + static_cast<int32_t>(taps);
  }
};

inline double resize_ratio(const Step& step, int64_t in_size, bool keep_equal, Rounding round) {
  const bool align_corners = step.d != 0;
  if (!align_corners) return scaled_ratio(step, in_size, keep_equal, round);
  return step.a > 1 ? ratio_of(length_of(step, in_size) - 1, step.a - 1, round) : 0;
}

// One output at `source`, between the nearest 2 or 4 pixels; taps beyond the image fold onto its first or last.
template <typename Real, const auto& kFilter>
void interpolate_row(Windows& windows, int64_t i, double source, int64_t in_size) {
  constexpr int64_t kReach = static_cast<int64_t>(kFilter.kSupport);
  // ATen calls floorf, for doubles too. No source lies below -0.5.
  const float coarse = static_cast<float>(source);
  const int64_t left = coarse < 0 ? -1 : whole_pixel(coarse, in_size - 1);
  const Real fraction = clamp(static_cast<Real>(source) - static_cast<Real>(left), Real(0), Real(1));

  double* const row = windows.row(i);
  const int64_t start = max<int64_t>(left + 1 - kReach, 0);
  int64_t last = -1;
  Real folded = 0;
  for (int64_t offset = 1 - kReach; offset <= kReach; ++offset) {
    // Distances as eager rounds them: from the left neighbour, and from the right one.
    const Real distance = offset > 0 ? (1 - fraction) + static_cast<Real>(offset - 1)
                                     : fraction - static_cast<Real>(offset);
    const int64_t slot = clamp<int64_t>(left + offset, 0, in_size - 1) - start;
    folded = (slot == last ? folded : Real(0)) + kFilter(distance);
    row[slot] = folded;
    last = slot;
    windows.peak = max<double>(windows.peak, folded);
  }
  windows.close_row(i, start, last + 1);
}

// fused: not for eager's bicubic backward, which alone is built for every CPU of its architecture: on x86 without fused
// multiply-adds.
template <typename Real>
Windows interpolated(const Step& step, int64_t in_size, bool keep_equal, bool fused, Rounding round) {
  const bool linear = step.b == kBilinear, align_corners = step.d != 0;
  const auto interpolate =
      linear ? interpolate_row<Real, filters::kTriangle> : interpolate_row<Real, filters::kPlainCubic>;
  const double ratio = resize_ratio(step, in_size, keep_equal, round);
  Windows windows(step.a, linear ? 2 : 4);
  for (int64_t i = 0; i < step.a; ++i) {
    const double centre = static_cast<double>(i) + 0.5;
    const double source = align_corners ? round(ratio * static_cast<double>(i) + step.begin)
                          : fused       ? round(half_pixel_source(step, ratio, i))
                                        : round(round(ratio * centre + step.begin) - 0.5);
    interpolate(windows, i, linear ? max(source, 0.0) : source, in_size);
  }
  return windows;
}

// Of the weights of one output.
struct Weighed {
  double total, most;
};

// Weighs the pixels of one output, whose centre and inverse stretch are given.
using WeighRow = Weighed (*)(double* row, int64_t start, int64_t stop, double centre, double inverse);

template <typename Real, const auto& kFilter>
Weighed weigh_row(double* row, int64_t start, int64_t stop, double centre, double inverse) {
  Weighed sum = {0, 0};  // in the order of pixels, as ATen sums
  for (int64_t pixel = start; pixel < stop; ++pixel) {
    const double from_centre = static_cast<Real>(pixel) - static_cast<Real>(centre);
    const double weight = kFilter(static_cast<Real>((from_centre + 0.5) * inverse));
    row[pixel - start] = weight;
    sum.total += weight;
    sum.most = max(sum.most, weight);
  }
  return sum;
}

struct AntialiasFilter {
  double support;
  WeighRow weigh_row;
};

template <typename Real, const auto& kFilter>
constexpr AntialiasFilter kAntialias = {kFilter.kSupport, weigh_row<Real, kFilter>};

// In the order of `Filter`. Eager has no box. Its edges are found in float64 for every dtype: a pixel that lies on one must
// not change sides.
template <typename Real>
constexpr AntialiasFilter kAntialiasFilters[] = {
    kAntialias<Real, filters::kTriangle>, kAntialias<Real, filters::kAntialiasCubic>, kAntialias<double, filters::kBox>,
    kAntialias<Real, filters::kHamming>, kAntialias<Real, filters::kLanczos3>};

// x / divisor, for many x: by the reciprocal, and twice corrected by the remainder. The first makes it one of the two
// doubles next to the quotient, the second then the correctly rounded one (Markstein): weights are 0, or far from where
// doubles lose precision.
struct Divisor {
  double value, reciprocal;

  explicit Divisor(double divisor) : value(divisor), reciprocal(1 / divisor) {}

  double of(double x) const {
#if defined(__FMA__) || defined(__aarch64__)
    double near = x * reciprocal;
    near = __builtin_fma(__builtin_fma(-near, value, x), reciprocal, near);
    return __builtin_fma(__builtin_fma(-near, value, x), reciprocal, near);
#else
    return x / value;
#endif
  }
};

// The greatest quotient of weights, or `least`. Without a division where that is certainly none of theirs; a total is
// negative where the centre of an output lies far outside.
inline double peak_of(const double* row, int64_t taps, const Weighed& sum, double least) {
  if (sum.total > 0) return sum.most > least * sum.total * kAlmost ? max(least, sum.most / sum.total) : least;
  for (int64_t k = 0; k < taps; ++k) least = max(least, row[k] / sum.total);
  return least;
}

// The filter, stretched over the input pixels of one output pixel when shrinking. Weights are to be divided by their total.
inline Windows antialiased(const AntialiasFilter& filter, const Step& step, int64_t in_size, Rounding round) {
  const double ratio = resize_ratio(step, in_size, true, round);
  const double stretch = max(ratio, 1.0);
  const double support = round(filter.support * stretch);
  const double inverse = round(1 / stretch);
  Windows windows(step.a, whole_pixel(2 * support + 2, in_size));
  windows.total.resize(step.a);
  for (int64_t i = 0; i < step.a; ++i) {
    const double centre = round(ratio * (static_cast<double>(i) + 0.5) + step.begin);
    const int64_t start = whole_pixel(round(centre - support) + 0.5, in_size);
    const int64_t stop = whole_pixel(round(centre + support) + 0.5, in_size);
    Weighed sum = filter.weigh_row(windows.row(i), start, stop, centre, inverse);
    if (sum.total == 0) sum.total = 1;
    windows.total[i] = sum.total;
    windows.peak = peak_of(windows.row(i), stop - start, sum, windows.peak);
    windows.close_row(i, start, stop - start);
  }
  return windows;
}

// The mean of the input pixels each output pixel touches.
inline Windows area(const Step& step, int64_t in_size, Rounding round) {
  const int64_t size = step.a;
  Windows windows(size, min((in_size + size - 1) / size + 1, in_size));
  for (int64_t i = 0; i < size; ++i) {
    const int64_t start = i * in_size / size;
    const int64_t stop = ((i + 1) * in_size + size - 1) / size;
    const double weight = round(1 / round(stop - start));
    double* const row = windows.row(i);
    for (int64_t k = 0; k < stop - start; ++k) row[k] = weight;
    windows.peak = max(windows.peak, weight);
    windows.close_row(i, start, stop - start);
  }
  return windows;
}

// The most bits after the binary point that leave the largest weight within 16 bits.
inline int32_t precision_for(double peak) {
  int32_t bits = 0;
  while (bits < kMaxPrecision && 0.5 + peak * static_cast<double>(int64_t{2} << bits) < 32768) ++bits;
  return bits;
}

// What becomes of a weight at last.
struct Finish {
  Rounding round;
  double one;  // 2^precision, of which it is a whole number, halves away from zero; 0 where it is not quantised

  double operator()(double weight) const {
    if (one == 0) return round(weight);
    const double scaled = weight * one;
    return __builtin_trunc(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
  }
};

// ---- Crops and flips before a weighted step --------------------------------------------------

// Pixel j of a crop is pixel first + direction * j of the axis.
struct Crop {
  int64_t first;
  int64_t direction;  // 1, or -1 where flipped
  int64_t size;
};

inline Crop crop_of(const Step* steps, const Step* end, int64_t in_size) {
  Crop crop{0, 1, in_size};
  for (const Step* step = steps; step != end; ++step) {
    if (step->kind == Step::kFlip) {
      crop.first += crop.direction * (crop.size - 1);
      crop.direction = -crop.direction;
    } else {
      crop.first += crop.direction * step->a;
      crop.size = step->b - step->a;
    }
  }
  return crop;
}

template <typename T>
void reverse(T* values, int64_t count) {
  for (int64_t i = 0; i < count / 2; ++i) swap(values[i], values[count - 1 - i]);
}

// Rows of windows upon a crop, without their taps of weight 0.
inline TapTable rows_upon(const Crop& crop, const Windows& windows, const WantedRows& wanted, Finish finish) {
  const int64_t rows = wanted.count < 0 ? windows.rows() : wanted.count;
  const auto row_at = [&](int64_t i) { return wanted.count < 0 ? i : wanted.row[i]; };
  TapTable table;
  table.begin.resize(rows + 1);
  int64_t most = 0;
  for (int64_t i = 0; i < rows; ++i) most += row_at(i) < 0 ? 0 : windows.taps(row_at(i));
  table.index.resize(most);
  table.weight.resize(most);
  int32_t* const index = table.index.data();
  double* const weight = table.weight.data();
  int32_t used = 0;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t row = row_at(i), first = used, taps = row < 0 ? 0 : windows.taps(row);
    const double* const own = row < 0 ? nullptr : windows.row(row);
    const Divisor divisor(row < 0 || windows.total.size() == 0 ? 1 : windows.total[row]);
    int64_t pixel = row < 0 ? 0 : crop.first + crop.direction * windows.start[row];
    for (int64_t t = 0; t < taps; ++t, pixel += crop.direction) {
      index[used] = static_cast<int32_t>(pixel);
      weight[used] = finish(divisor.of(own[t]));
      used += weight[used] != 0;
    }
    if (crop.direction < 0) {
      reverse(index + first, used - first);
      reverse(weight + first, used - first);
    }
    table.begin[i + 1] = used;
  }
  table.index.resize(used);
  table.weight.resize(used);
  return table;
}

}  // namespace detail

// Tap tables of weighted steps, in one arithmetic.
template <TapArithmetic kArithmetic>
struct Weights {
  using Real = Conditional<kArithmetic == TapArithmetic::kFloat32, float, double>;
  static constexpr bool kQuantised = kArithmetic == TapArithmetic::kQuantised;
  static constexpr detail::Rounding kRound{kArithmetic == TapArithmetic::kFloat32};

  // The step `weighted`, and the crops and flips before it. fused: see `interpolated`.
  static void weigh(const Step* steps, const Step* weighted, int64_t in_size, bool fused, const WantedRows& rows,
                    TapTable* table) {
    const detail::Crop crop = detail::crop_of(steps, weighted, in_size);
    const detail::Windows windows = windows_of(*weighted, crop.size, fused);
    const int32_t precision = kQuantised ? detail::precision_for(windows.peak) : 0;
    const double one = kQuantised ? static_cast<double>(int64_t{1} << precision) : 0;
    *table = detail::rows_upon(crop, windows, rows, {kRound, one});
    table->in_size = in_size;
    table->precision = precision;
  }

 private:
  static detail::Windows windows_of(const Step& step, int64_t in_size, bool fused) {
    using namespace detail;
    const Rounding round = kRound;
    if (step.kind == Step::kArea) return area(step, in_size, round);
    const bool antialias = step.c != 0;
    const AntialiasFilter& filter = kAntialiasFilters<Real>[step.b];
    if (antialias) return antialiased(filter, step, in_size, step.b == kBox ? Rounding{false} : round);
    if (step.b == kBilinear) return interpolated<Real>(step, in_size, true, true, round);
    // Eager's float bicubic resamples an axis even if only its scale changes; its uint8 one does not.
    return interpolated<Real>(step, in_size, kQuantised, fused, round);
  }
};

}  // namespace polyphase
