// The tap table of one axis, made as `sampling/evaluate.py` makes it, for sizes never seen before.
//
// To be compiled with -ffp-contract=off: the weights equal eager's only if every operation rounds where it is written.
// It is compiled at a user's first call: few headers, and only the innermost loops once for each filter and precision.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "polyphase/abi.h"
#include "polyphase/buffer.h"
#include "polyphase/filters.h"
#include "polyphase/minmax.h"

namespace polyphase {

// Owns what a `Taps` points at.
struct TapTable {
  int64_t in_size = 0;
  Buffer<int32_t> begin;  // out_size + 1
  Buffer<int32_t> index;
  Buffer<double> weight;
  Buffer<int32_t> border;  // empty where there is none
  int32_t precision = 0;
  bool index_only = false;

  int64_t out_size() const { return begin.size() - 1; }

  Taps view() const {
    const int32_t* const borders = border.size() == 0 ? nullptr : border.data();
    return {in_size, out_size(), begin.data(), index.data(), weight.data(), borders, precision, index_only};
  }

  size_t bytes() const { return static_cast<size_t>(begin.bytes() + index.bytes() + weight.bytes() + border.bytes()); }
};

namespace detail {

// ATen's limit for the number of bits after the binary point of a 16 bit weight.
constexpr int32_t kMaxPrecision = 22;

// A position rounded down to a whole number in [0, most]; what is no number is 0.
template <typename Real>
int64_t whole_pixel(Real position, int64_t most) {
  if (!(position > 0)) return 0;
  return position < static_cast<Real>(most) ? static_cast<int64_t>(position) : most;
}

// Whether eager computes in float or in double. The sum, difference, product or quotient of floats is that of doubles,
// rounded once more: one loop serves both, which computes in double and rounds where eager does. Where eager rounds
// once, after a fused multiply-add, a float's expression is rounded at its end.
struct Rounding {
  bool to_float;

  double operator()(double value) const { return to_float ? static_cast<float>(value) : value; }
  double operator()(int64_t value) const { return (*this)(static_cast<double>(value)); }
};

// ---- Weighted steps --------------------------------------------------------------------------

// Row i reads pixel start[i] + k with weight[begin[i] + k]. Weights may be 0.
struct Windows {
  Buffer<int32_t> begin;
  Buffer<int32_t> start;
  Buffer<double> weight;
  double peak = 0;  // the largest weight there was, also one that folding made smaller again

  Windows(int64_t rows, int64_t most_taps) : begin(rows + 1), start(rows), weight(rows * most_taps) {}

  int64_t rows() const { return start.size(); }
  double* row(int64_t i) { return weight.data() + begin[i]; }

  void close_row(int64_t i, int64_t first_pixel, int64_t taps) {
    start[i] = static_cast<int32_t>(first_pixel);
    begin[i + 1] = begin[i] + static_cast<int32_t>(taps);
  }
};

inline double ratio_of(int64_t in_size, int64_t out_size, Rounding round) {
  return round(round(in_size) / round(out_size));
}

// Input pixels per output pixel, rounded as eager rounds it. keep_equal: a scale that leaves the size as it is leaves
// the axis as it is.
inline double scaled_ratio(const Step& step, int64_t in_size, bool keep_equal, Rounding round) {
  const bool scaled = step.scale == step.scale;
  if (!scaled) return ratio_of(in_size, step.a, round);
  return keep_equal && in_size == step.a ? 1 : round(1 / step.scale);
}

inline double resize_ratio(const Step& step, int64_t in_size, bool keep_equal, Rounding round) {
  const bool align_corners = step.d != 0;
  if (!align_corners) return scaled_ratio(step, in_size, keep_equal, round);
  return step.a > 1 ? ratio_of(in_size - 1, step.a - 1, round) : 0;
}

// ratio * (i + 0.5) - 0.5 with one rounding: both halves' products are exact for sizes below 2^24.
inline double half_pixel_source(double ratio, int64_t i) {
  const double centre = static_cast<double>(i) + 0.5;
  const double high = static_cast<float>(ratio);
  const double low = ratio - high;
  return (high * centre - 0.5) + low * centre;
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

// fused: eager's bicubic backward, alone, is built without fused multiply-adds.
inline Windows interpolated(const Step& step, int64_t in_size, bool keep_equal, bool fused, Rounding round) {
  const bool linear = step.b == kBilinear, align_corners = step.d != 0;
  const auto interpolate = linear ? round.to_float ? interpolate_row<float, filters::kTriangle>
                                                   : interpolate_row<double, filters::kTriangle>
                           : round.to_float ? interpolate_row<float, filters::kPlainCubic>
                                            : interpolate_row<double, filters::kPlainCubic>;
  const double ratio = resize_ratio(step, in_size, keep_equal, round);
  Windows windows(step.a, linear ? 2 : 4);
  for (int64_t i = 0; i < step.a; ++i) {
    const double centre = static_cast<double>(i) + 0.5;
    const double source = align_corners ? round(ratio * static_cast<double>(i))
                          : fused       ? round(half_pixel_source(ratio, i))
                                        : round(round(ratio * centre) - 0.5);
    interpolate(windows, i, linear ? max(source, 0.0) : source, in_size);
  }
  return windows;
}

// Weighs the pixels of one output, whose centre and inverse stretch are given; returns the sum of the weights.
using WeighRow = double (*)(double* row, int64_t start, int64_t stop, double centre, double inverse);

template <typename Real, const auto& kFilter>
double weigh_row(double* row, int64_t start, int64_t stop, double centre, double inverse) {
  double total = 0;  // in the order of pixels, as ATen sums
  for (int64_t pixel = start; pixel < stop; ++pixel) {
    const double from_centre = static_cast<Real>(pixel) - static_cast<Real>(centre);
    const double weight = kFilter(static_cast<Real>((from_centre + 0.5) * inverse));
    row[pixel - start] = weight;
    total += weight;
  }
  return total;
}

struct AntialiasFilter {
  double support;
  WeighRow in_double, in_float;
};

template <const auto& kFilter>
constexpr AntialiasFilter kAntialias = {kFilter.kSupport, weigh_row<double, kFilter>, weigh_row<float, kFilter>};

// In the order of `Filter`.
constexpr AntialiasFilter kAntialiasFilters[] = {kAntialias<filters::kTriangle>, kAntialias<filters::kAntialiasCubic>,
                                                 kAntialias<filters::kBox>, kAntialias<filters::kHamming>,
                                                 kAntialias<filters::kLanczos3>};

// Makes weights of this total sum to 1; returns the largest.
inline double normalise(double* row, int64_t taps, double total, Rounding round) {
  const double divisor = total == 0 ? 1 : total;
  double peak = 0;
  for (int64_t k = 0; k < taps; ++k) {
    row[k] = round(row[k] / divisor);
    peak = max(peak, row[k]);
  }
  return peak;
}

// The filter, stretched over the input pixels of one output pixel when shrinking, and normalised.
inline Windows antialiased(const Step& step, int64_t in_size, Rounding round) {
  const AntialiasFilter& filter = kAntialiasFilters[step.b];
  const WeighRow weigh_row = round.to_float ? filter.in_float : filter.in_double;
  const double ratio = resize_ratio(step, in_size, true, round);
  const double stretch = max(ratio, 1.0);
  const double support = round(filter.support * stretch);
  const double inverse = round(1 / stretch);
  Windows windows(step.a, whole_pixel(2 * support + 2, in_size));
  for (int64_t i = 0; i < step.a; ++i) {
    const double centre = round(ratio * (static_cast<double>(i) + 0.5));
    const int64_t start = whole_pixel(round(centre - support) + 0.5, in_size);
    const int64_t stop = whole_pixel(round(centre + support) + 0.5, in_size);
    const double total = weigh_row(windows.row(i), start, stop, centre, inverse);
    windows.peak = max(windows.peak, normalise(windows.row(i), stop - start, total, round));
    windows.close_row(i, start, stop - start);
  }
  return windows;
}

// Eager has no box. Its edges are found in float64 for every dtype: a pixel that lies on one must not change sides.
inline Windows box(const Step& step, int64_t in_size, Rounding round) {
  Windows windows = antialiased(step, in_size, {false});
  for (double& weight : windows.weight) weight = round(weight);
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

inline Windows windows_of(const Step& step, int64_t in_size, Arithmetic arithmetic, bool fused) {
  const Rounding round{arithmetic == Arithmetic::kFloat32};
  if (step.kind == Step::kArea) return area(step, in_size, round);
  const bool antialias = step.c != 0;
  if (antialias) return step.b == kBox ? box(step, in_size, round) : antialiased(step, in_size, round);
  if (step.b == kBilinear) return interpolated(step, in_size, true, true, round);
  // Eager's float bicubic resamples an axis even if only its scale changes; its uint8 one does not.
  return interpolated(step, in_size, arithmetic == Arithmetic::kQuantised, fused, round);
}

// The most bits after the binary point that leave the largest weight within 16 bits.
inline int32_t precision_for(double peak) {
  int32_t bits = 0;
  while (bits < kMaxPrecision && 0.5 + peak * static_cast<double>(int64_t{2} << bits) < 32768) ++bits;
  return bits;
}

// Integers over 2^precision, halves away from zero.
inline int32_t quantise(Windows& windows) {
  const int32_t precision = precision_for(windows.peak);
  const double one = static_cast<double>(int64_t{1} << precision);
  const int64_t taps = windows.begin.back();
  for (int64_t t = 0; t < taps; ++t) {
    const double scaled = windows.weight[t] * one;
    windows.weight[t] = __builtin_trunc(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
  }
  return precision;
}

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
  for (int64_t i = 0; i < count / 2; ++i) std::swap(values[i], values[count - 1 - i]);
}

// The rows of windows upon a crop, without their taps of weight 0. Takes what the windows own.
inline TapTable rows_upon(const Crop& crop, Windows& windows) {
  TapTable table;
  table.begin = std::move(windows.begin);
  table.weight = std::move(windows.weight);
  table.index.resize(table.begin.back());
  int32_t* const index = table.index.data();
  double* const weight = table.weight.data();
  int32_t used = 0, begin = 0;
  for (int64_t i = 0; i < windows.rows(); ++i) {
    const int32_t row = used, stop = table.begin[i + 1];
    int64_t pixel = crop.first + crop.direction * windows.start[i];
    for (int32_t t = begin; t < stop; ++t, pixel += crop.direction) {
      index[used] = static_cast<int32_t>(pixel);
      weight[used] = weight[t];
      used += weight[used] != 0;
    }
    if (crop.direction < 0) {
      reverse(index + row, used - row);
      reverse(weight + row, used - row);
    }
    begin = stop;
    table.begin[i + 1] = used;
  }
  table.index.resize(used);
  table.weight.resize(used);
  return table;
}

inline TapTable weighted_table(const Step* steps, const Step* weighted, int64_t in_size, Arithmetic arithmetic,
                               bool fused) {
  const Crop crop = crop_of(steps, weighted, in_size);
  Windows windows = windows_of(*weighted, crop.size, arithmetic, fused);
  const int32_t precision = arithmetic == Arithmetic::kQuantised ? quantise(windows) : 0;
  TapTable table = rows_upon(crop, windows);
  table.in_size = in_size;
  table.precision = precision;
  return table;
}

// ---- Index-only steps ------------------------------------------------------------------------

// For each output the row it takes, or minus the number of its constant border.
using Selection = Buffer<int32_t>;

template <typename Source>
Selection select(int64_t size, Source source) {
  Selection selection(size);
  for (int64_t i = 0; i < size; ++i) selection[i] = static_cast<int32_t>(source(i));
  return selection;
}

inline Selection nearest(const Step& step, const Selection& from, Rounding round) {
  const int64_t last = from.size() - 1;
  const bool exact = step.b != 0;
  const double ratio = scaled_ratio(step, from.size(), false, round);
  return select(step.a, [&](int64_t i) {
    const float position = static_cast<float>(exact ? half_pixel_source(ratio, i) : ratio * static_cast<double>(i));
    return from[whole_pixel(exact ? max(position, 0.0f) + 0.5f : position, last)];
  });
}

inline Selection slice(const Step& step, const Selection& from) {
  const int64_t start = step.a, stop = step.b, stride = step.c;
  return select((stop - start + stride - 1) / stride,
                [&](int64_t i) { return from[start + i * stride]; });
}

inline Selection pad(const Step& step, const Selection& from) {
  const int64_t before = step.a, after = step.b;
  const int64_t in_size = from.size(), last = in_size - 1;
  const int64_t out_size = before + in_size + after;
  switch (step.c) {
    case kReflect:
      return select(out_size, [&](int64_t i) {
        return from[last - __builtin_llabs(__builtin_llabs(i - before) - last)];
      });
    case kReplicate:
      return select(out_size, [&](int64_t i) {
        return from[clamp<int64_t>(i - before, 0, last)];
      });
    case kCircular: {  // what is left after a crop is what repeats
      const int64_t first = max<int64_t>(-before, 0);
      const int64_t length = in_size - first - max<int64_t>(-after, 0);
      return select(out_size, [&](int64_t i) {
        const int64_t remainder = (i - before - first) % length;
        return from[first + (remainder < 0 ? remainder + length : remainder)];
      });
    }
    default: {
      const int32_t border = -static_cast<int32_t>(step.d);
      return select(out_size, [&](int64_t i) {
        const int64_t place = i - before;
        if (place >= 0 && place < in_size) return from[place];
        if (in_size == 0) return border;
        return min(border, from[place < 0 ? 0 : last]);  // the greater number wins
      });
    }
  }
}

inline Selection followed_by(const Step& step, const Selection& from, Arithmetic arithmetic) {
  switch (step.kind) {
    case Step::kFlip: return select(from.size(), [&](int64_t i) { return from[from.size() - 1 - i]; });
    case Step::kSlice: return slice(step, from);
    case Step::kPad: return pad(step, from);
    default: return nearest(step, from, {arithmetic != Arithmetic::kFloat64});
  }
}

inline Selection selection_of(const Step* steps, const Step* end, int64_t in_size, Arithmetic arithmetic) {
  Selection selection = select(in_size, [](int64_t i) { return i; });
  for (const Step* step = steps; step != end; ++step) selection = followed_by(*step, selection, arithmetic);
  return selection;
}

// Empty where there is none.
inline Buffer<int32_t> borders_of(const Selection& selection) {
  bool any = false;
  for (const int32_t row : selection) any |= row < 0;
  return select(any ? selection.size() : 0, [&](int64_t i) { return max(-selection[i], 0); });
}

inline TapTable index_only_table(const Selection& selection, int64_t in_size) {
  TapTable table;
  table.in_size = in_size;
  table.index_only = true;
  table.border = borders_of(selection);
  table.begin.resize(selection.size() + 1);
  table.index.resize(selection.size());
  int32_t used = 0;
  for (int64_t i = 0; i < selection.size(); ++i) {
    table.index[used] = selection[i];
    used += selection[i] >= 0;
    table.begin[i + 1] = used;
  }
  table.index.resize(used);
  table.weight.fill(used, 1.0);
  return table;
}

inline TapTable selected(const TapTable& rows, const Selection& selection) {
  TapTable table;
  table.in_size = rows.in_size;
  table.precision = rows.precision;
  table.border = borders_of(selection);
  table.begin.resize(selection.size() + 1);
  for (int64_t i = 0; i < selection.size(); ++i) {
    const int32_t row = selection[i];
    table.begin[i + 1] = table.begin[i] + (row < 0 ? 0 : rows.begin[row + 1] - rows.begin[row]);
  }
  table.index.resize(table.begin.back());
  table.weight.resize(table.begin.back());
  for (int64_t i = 0; i < selection.size(); ++i) {
    if (selection[i] < 0) continue;
    const int32_t from = rows.begin[selection[i]];
    for (int32_t t = table.begin[i]; t < table.begin[i + 1]; ++t) {
      table.index[t] = rows.index[from + t - table.begin[i]];
      table.weight[t] = rows.weight[from + t - table.begin[i]];
    }
  }
  return table;
}

// ---- The adjoint -----------------------------------------------------------------------------

inline bool has_one_tap_per_row(const TapTable& table) {
  for (int64_t i = 0; i < table.out_size(); ++i) {
    if (table.begin[i + 1] - table.begin[i] != 1) return false;
  }
  return true;
}

// Input pixel j becomes an output, with one tap for each output that read it.
inline TapTable transpose(const TapTable& table) {
  TapTable result;
  result.in_size = table.out_size();
  result.begin.resize(table.in_size + 1);
  result.index.resize(table.index.size());
  result.weight.resize(table.weight.size());
  for (const int32_t pixel : table.index) ++result.begin[pixel + 1];
  for (int64_t j = 0; j < table.in_size; ++j) result.begin[j + 1] += result.begin[j];

  Buffer<int32_t> places;
  places.assign(result.begin.data(), table.in_size);
  int32_t *const next = places.data(), *const index = result.index.data();
  double* const weight = result.weight.data();
  for (int64_t i = 0; i < table.out_size(); ++i) {
    for (int32_t t = table.begin[i]; t < table.begin[i + 1]; ++t) {
      const int32_t place = next[table.index[t]]++;
      index[place] = static_cast<int32_t>(i);
      weight[place] = table.weight[t];
    }
  }
  result.index_only = table.index_only && has_one_tap_per_row(result);
  return result;
}

// Of the map itself. fused: see `interpolated`.
inline TapTable taps_of(const Step* steps, const Step* end, int64_t in_size, Arithmetic arithmetic, bool fused) {
  const Step* weighted = steps;
  while (weighted != end && weighted->kind != Step::kResize && weighted->kind != Step::kArea) ++weighted;
  if (weighted == end) return index_only_table(selection_of(steps, end, in_size, arithmetic), in_size);
  TapTable table = weighted_table(steps, weighted, in_size, arithmetic, fused);
  const Step* const after = weighted + 1;
  return after == end ? std::move(table) : selected(table, selection_of(after, end, weighted->a, arithmetic));
}

}  // namespace detail

// The taps of an axis map, given as its steps in order and in the normal form, for an axis of `in_size` pixels that the
// steps fit. transposed: of its adjoint; not for quantised arithmetic.
inline TapTable make_taps(const Step* steps, int64_t count, int64_t in_size, Arithmetic arithmetic, bool transposed) {
  TapTable table = detail::taps_of(steps, steps + count, in_size, arithmetic, !transposed);
  return transposed ? detail::transpose(table) : std::move(table);
}

}  // namespace polyphase
