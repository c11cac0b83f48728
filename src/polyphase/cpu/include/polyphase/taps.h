// The tap table of one axis, made as `sampling/evaluate.py` makes it, for sizes never seen before.
//
// To be compiled with -ffp-contract=off: the weights equal eager's only if every operation rounds
// where it is written. Where eager rounds once, after a fused multiply-add, a float's expression is
// computed in double and then rounded.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "polyphase/abi.h"
#include "polyphase/filters.h"

namespace polyphase {

// Owns what a `Taps` points at.
struct TapTable {
  int64_t in_size = 0;
  std::vector<int32_t> begin{0};
  std::vector<int32_t> index;
  std::vector<double> weight;
  std::vector<int32_t> border;  // empty where there is none
  int32_t precision = 0;
  bool index_only = false;

  int64_t out_size() const { return static_cast<int64_t>(begin.size()) - 1; }

  Taps view() const {
    const int32_t* const borders = border.empty() ? nullptr : border.data();
    return {in_size,       out_size(), begin.data(), index.data(),
            weight.data(), borders,    precision,    index_only};
  }

  size_t bytes() const {
    const size_t integers = begin.capacity() + index.capacity() + border.capacity();
    return integers * sizeof(int32_t) + weight.capacity() * sizeof(double);
  }
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

// ---- Weighted steps --------------------------------------------------------------------------

// Row i reads pixel start[i] + k with weight[begin[i] + k]. Weights may be 0.
struct Windows {
  std::vector<int32_t> begin;
  std::vector<int32_t> start;
  std::vector<double> weight;
  double peak = 0;  // the largest weight there was, also one that folding made smaller again

  Windows(int64_t rows, int64_t most_taps)
      : begin(rows + 1), start(rows), weight(static_cast<size_t>(rows * most_taps)) {}

  int64_t rows() const { return static_cast<int64_t>(start.size()); }
  double* row(int64_t i) { return weight.data() + begin[i]; }

  void close_row(int64_t i, int64_t first_pixel, int64_t taps) {
    start[i] = static_cast<int32_t>(first_pixel);
    begin[i + 1] = begin[i] + static_cast<int32_t>(taps);
  }
};

template <typename Real>
Real ratio_of(int64_t in_size, int64_t out_size) {
  return static_cast<Real>(in_size) / static_cast<Real>(out_size);
}

// Input pixels per output pixel, rounded as eager rounds it. keep_equal: a scale that leaves the
// size as it is leaves the axis as it is.
template <typename Real>
Real scaled_ratio(const Step& step, int64_t in_size, bool keep_equal) {
  if (std::isnan(step.scale)) return ratio_of<Real>(in_size, step.a);
  return keep_equal && in_size == step.a ? Real(1) : static_cast<Real>(1 / step.scale);
}

template <typename Real>
Real resize_ratio(const Step& step, int64_t in_size, bool keep_equal) {
  const bool align_corners = step.d != 0;
  if (!align_corners) return scaled_ratio<Real>(step, in_size, keep_equal);
  return step.a > 1 ? ratio_of<Real>(in_size - 1, step.a - 1) : Real(0);
}

// ratio * (i + 0.5) - 0.5 with one rounding: both halves' products are exact for sizes below 2^24.
template <typename Real>
double half_pixel_source(Real ratio, int64_t i) {
  const double centre = static_cast<double>(i) + 0.5;
  const double high = static_cast<float>(ratio);
  const double low = static_cast<double>(ratio) - high;
  return (high * centre - 0.5) + low * centre;
}

// One output at `source`, between the nearest 2 or 4 pixels; taps beyond the image fold onto its
// first or last.
template <typename Real, typename Filter>
void interpolate_row(Windows& windows, int64_t i, Real source, int64_t in_size, Filter filter) {
  constexpr int64_t kReach = static_cast<int64_t>(Filter::kSupport);
  // ATen calls floorf, for doubles too. No source lies below -0.5.
  const float coarse = static_cast<float>(source);
  const int64_t left = coarse < 0 ? -1 : whole_pixel(coarse, in_size - 1);
  const Real fraction = std::clamp(source - static_cast<Real>(left), Real(0), Real(1));

  double* const row = windows.row(i);
  const int64_t start = std::max<int64_t>(left + 1 - kReach, 0);
  int64_t last = -1;
  Real folded = 0;
  for (int64_t offset = 1 - kReach; offset <= kReach; ++offset) {
    // Distances as eager rounds them: from the left neighbour, and from the right one.
    const Real distance = offset > 0 ? (1 - fraction) + static_cast<Real>(offset - 1)
                                     : fraction - static_cast<Real>(offset);
    const int64_t slot = std::clamp<int64_t>(left + offset, 0, in_size - 1) - start;
    folded = (slot == last ? folded : Real(0)) + filter(distance);
    row[slot] = folded;
    last = slot;
    windows.peak = std::max<double>(windows.peak, folded);
  }
  windows.close_row(i, start, last + 1);
}

template <typename Real, typename Filter>
Windows interpolated(const Step& step, int64_t in_size, Filter filter, bool keep_equal, bool fused) {
  const bool linear = Filter::kSupport == 1, align_corners = step.d != 0;
  const Real ratio = resize_ratio<Real>(step, in_size, keep_equal);
  Windows windows(step.a, static_cast<int64_t>(2 * Filter::kSupport));
  for (int64_t i = 0; i < step.a; ++i) {
    const double centre = static_cast<double>(i) + 0.5;
    const Real source = align_corners ? static_cast<Real>(ratio * static_cast<double>(i))
                        : fused       ? static_cast<Real>(half_pixel_source(ratio, i))
                                      : static_cast<Real>(ratio * centre) - Real(0.5);
    interpolate_row(windows, i, linear ? std::max(source, Real(0)) : source, in_size, filter);
  }
  return windows;
}

// Makes weights of this total sum to 1; returns the largest.
template <typename Real>
double normalise(double* row, int64_t taps, double total) {
  const double divisor = total == 0 ? 1 : total;
  double peak = 0;
  for (int64_t k = 0; k < taps; ++k) {
    row[k] = static_cast<Real>(row[k] / divisor);
    peak = std::max(peak, row[k]);
  }
  return peak;
}

// The filter, stretched over the input pixels of one output pixel when shrinking, and normalised.
template <typename Real, typename Filter>
Windows antialiased(const Step& step, int64_t in_size, Filter filter) {
  const Real ratio = resize_ratio<Real>(step, in_size, true);
  const double stretch = std::max<double>(ratio, 1);
  const Real support = static_cast<Real>(Filter::kSupport * stretch);
  const double inverse = static_cast<Real>(1 / stretch);
  Windows windows(step.a, whole_pixel(2 * static_cast<double>(support) + 2, in_size));
  for (int64_t i = 0; i < step.a; ++i) {
    const Real centre = static_cast<Real>(ratio * (static_cast<double>(i) + 0.5));
    const int64_t start = whole_pixel(static_cast<double>(centre - support) + 0.5, in_size);
    const int64_t stop = whole_pixel(static_cast<double>(centre + support) + 0.5, in_size);
    double* const row = windows.row(i);
    double total = 0;  // in the order of pixels, as ATen sums
    for (int64_t pixel = start; pixel < stop; ++pixel) {
      const double from_centre = static_cast<Real>(pixel) - centre;
      const double weight = filter(static_cast<Real>((from_centre + 0.5) * inverse));
      row[pixel - start] = weight;
      total += weight;
    }
    windows.peak = std::max(windows.peak, normalise<Real>(row, stop - start, total));
    windows.close_row(i, start, stop - start);
  }
  return windows;
}

// The mean of the input pixels each output pixel touches.
template <typename Real>
Windows area(const Step& step, int64_t in_size) {
  const int64_t size = step.a;
  Windows windows(size, std::min((in_size + size - 1) / size + 1, in_size));
  for (int64_t i = 0; i < size; ++i) {
    const int64_t start = i * in_size / size;
    const int64_t stop = ((i + 1) * in_size + size - 1) / size;
    const double weight = Real(1) / static_cast<Real>(stop - start);
    std::fill_n(windows.row(i), stop - start, weight);
    windows.peak = std::max(windows.peak, weight);
    windows.close_row(i, start, stop - start);
  }
  return windows;
}

// fused: eager's bicubic backward, alone, is built without fused multiply-adds.
template <typename Real>
Windows plain_windows(const Step& step, int64_t in_size, bool quantised, bool fused) {
  if (step.b == kBilinear) return interpolated<Real>(step, in_size, filters::Triangle{}, true, true);
  // Eager's float bicubic resamples an axis even if only its scale changes; its uint8 one does not.
  return interpolated<Real>(step, in_size, filters::kPlainCubic, quantised, fused);
}

// Eager has no box. Its edges are found in float64 for every dtype: a pixel that lies on one must not change sides.
template <typename Real>
Windows box(const Step& step, int64_t in_size) {
  Windows windows = antialiased<double>(step, in_size, filters::Box{});
  for (double& weight : windows.weight) weight = static_cast<Real>(weight);
  return windows;
}

template <typename Real>
Windows antialias_windows(const Step& step, int64_t in_size) {
  switch (step.b) {
    case kBox: return box<Real>(step, in_size);
    case kHamming: return antialiased<Real>(step, in_size, filters::Hamming{});
    case kBicubic: return antialiased<Real>(step, in_size, filters::kAntialiasCubic);
    case kLanczos: return antialiased<Real>(step, in_size, filters::Lanczos3{});
    default: return antialiased<Real>(step, in_size, filters::Triangle{});
  }
}

template <typename Real>
Windows windows_of(const Step& step, int64_t in_size, bool quantised, bool fused) {
  if (step.kind == Step::kArea) return area<Real>(step, in_size);
  const bool antialias = step.c != 0;
  return antialias ? antialias_windows<Real>(step, in_size)
                   : plain_windows<Real>(step, in_size, quantised, fused);
}

// The most bits after the binary point that leave the largest weight within 16 bits.
inline int32_t precision_for(double peak) {
  int32_t bits = 0;
  while (bits < kMaxPrecision && std::floor(0.5 + std::ldexp(peak, bits + 1)) < 32768) ++bits;
  return bits;
}

// Integers over 2^precision, halves away from zero.
inline int32_t quantise(Windows& windows) {
  const int32_t precision = precision_for(windows.peak);
  const double one = std::ldexp(1.0, precision);
  const int64_t taps = windows.begin.back();
  for (int64_t t = 0; t < taps; ++t) {
    const double scaled = windows.weight[t] * one;
    windows.weight[t] = std::trunc(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
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

// The rows of windows upon a crop, without their taps of weight 0.
inline TapTable rows_upon(const Crop& crop, Windows windows) {
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
      std::reverse(index + row, index + used);
      std::reverse(weight + row, weight + used);
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
  const bool quantised = arithmetic == Arithmetic::kQuantised;
  Windows windows = arithmetic == Arithmetic::kFloat32
                        ? windows_of<float>(*weighted, crop.size, quantised, fused)
                        : windows_of<double>(*weighted, crop.size, quantised, fused);
  const int32_t precision = quantised ? quantise(windows) : 0;
  TapTable table = rows_upon(crop, std::move(windows));
  table.in_size = in_size;
  table.precision = precision;
  return table;
}

// ---- Index-only steps ------------------------------------------------------------------------

// For each output the row it takes, or minus the number of its constant border.
using Selection = std::vector<int32_t>;

template <typename Source>
Selection select(int64_t size, Source source) {
  Selection selection(size);
  for (int64_t i = 0; i < size; ++i) selection[i] = source(i);
  return selection;
}

template <typename Real>
Selection nearest(const Step& step, const Selection& from) {
  const int64_t in_size = static_cast<int64_t>(from.size());
  const bool exact = step.b != 0;
  const Real ratio = scaled_ratio<Real>(step, in_size, false);
  return select(step.a, [&](int64_t i) {
    const float position = static_cast<float>(exact ? half_pixel_source(ratio, i)
                                                    : ratio * static_cast<double>(i));
    return from[whole_pixel(exact ? std::max(position, 0.0f) + 0.5f : position, in_size - 1)];
  });
}

inline Selection slice(const Step& step, const Selection& from) {
  const int64_t start = step.a, stop = step.b, stride = step.c;
  return select((stop - start + stride - 1) / stride,
                [&](int64_t i) { return from[start + i * stride]; });
}

inline Selection pad(const Step& step, const Selection& from) {
  const int64_t before = step.a, after = step.b;
  const int64_t in_size = static_cast<int64_t>(from.size()), last = in_size - 1;
  const int64_t out_size = before + in_size + after;
  switch (step.c) {
    case kReflect:
      return select(out_size, [&](int64_t i) {
        return from[last - std::abs(std::abs(i - before) - last)];
      });
    case kReplicate:
      return select(out_size, [&](int64_t i) {
        return from[std::clamp<int64_t>(i - before, 0, last)];
      });
    case kCircular: {  // what is left after a crop is what repeats
      const int64_t first = std::max<int64_t>(-before, 0);
      const int64_t length = in_size - first - std::max<int64_t>(-after, 0);
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
        return std::min(border, from[place < 0 ? 0 : last]);  // the greater number wins
      });
    }
  }
}

inline Selection followed_by(const Step& step, const Selection& from, Arithmetic arithmetic) {
  switch (step.kind) {
    case Step::kFlip: return Selection(from.rbegin(), from.rend());
    case Step::kSlice: return slice(step, from);
    case Step::kPad: return pad(step, from);
    default:
      return arithmetic == Arithmetic::kFloat64 ? nearest<double>(step, from)
                                                : nearest<float>(step, from);
  }
}

inline Selection selection_of(const Step* steps, const Step* end, int64_t in_size,
                              Arithmetic arithmetic) {
  Selection selection(in_size);
  std::iota(selection.begin(), selection.end(), 0);
  for (const Step* step = steps; step != end; ++step) {
    selection = followed_by(*step, selection, arithmetic);
  }
  return selection;
}

inline std::vector<int32_t> borders_of(const Selection& selection) {
  const auto is_border = [](int32_t row) { return row < 0; };
  if (std::none_of(selection.begin(), selection.end(), is_border)) return {};
  std::vector<int32_t> borders(selection.size());
  for (size_t i = 0; i < selection.size(); ++i) borders[i] = std::max(-selection[i], 0);
  return borders;
}

inline TapTable index_only_table(const Selection& selection, int64_t in_size) {
  TapTable table;
  table.in_size = in_size;
  table.index_only = true;
  table.border = borders_of(selection);
  table.begin.reserve(selection.size() + 1);
  table.index.reserve(selection.size());
  for (const int32_t row : selection) {
    if (row >= 0) table.index.push_back(row);
    table.begin.push_back(static_cast<int32_t>(table.index.size()));
  }
  table.weight.assign(table.index.size(), 1.0);
  return table;
}

inline TapTable selected(const TapTable& rows, const Selection& selection) {
  TapTable table;
  table.in_size = rows.in_size;
  table.precision = rows.precision;
  table.border = borders_of(selection);
  table.begin.reserve(selection.size() + 1);
  for (const int32_t row : selection) {
    const int32_t taps = row < 0 ? 0 : rows.begin[row + 1] - rows.begin[row];
    table.begin.push_back(table.begin.back() + taps);
  }
  table.index.resize(table.begin.back());
  table.weight.resize(table.begin.back());
  for (size_t i = 0; i < selection.size(); ++i) {
    if (selection[i] < 0) continue;
    const int32_t from = rows.begin[selection[i]], to = table.begin[i];
    const int32_t taps = table.begin[i + 1] - to;
    std::copy_n(rows.index.data() + from, taps, table.index.data() + to);
    std::copy_n(rows.weight.data() + from, taps, table.weight.data() + to);
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
  result.begin.assign(table.in_size + 1, 0);
  result.index.resize(table.index.size());
  result.weight.resize(table.weight.size());
  for (const int32_t pixel : table.index) ++result.begin[pixel + 1];
  std::partial_sum(result.begin.begin(), result.begin.end(), result.begin.begin());

  std::vector<int32_t> next(result.begin.begin(), result.begin.end() - 1);
  for (int64_t i = 0; i < table.out_size(); ++i) {
    for (int32_t t = table.begin[i]; t < table.begin[i + 1]; ++t) {
      const int32_t place = next[table.index[t]]++;
      result.index[place] = static_cast<int32_t>(i);
      result.weight[place] = table.weight[t];
    }
  }
  result.index_only = table.index_only && has_one_tap_per_row(result);
  return result;
}

}  // namespace detail

// The taps of an axis map, given as its steps in order and in the normal form, for an axis of
// `in_size` pixels that the steps fit. transposed: of its adjoint; not for quantised arithmetic.
inline TapTable make_taps(const Step* steps, int64_t count, int64_t in_size, Arithmetic arithmetic,
                          bool transposed) {
  using namespace detail;
  const Step* const end = steps + count;
  const Step* const weighted = std::find_if(steps, end, [](const Step& step) {
    return step.kind == Step::kResize || step.kind == Step::kArea;
  });
  TapTable table;
  if (weighted == end) {
    table = index_only_table(selection_of(steps, end, in_size, arithmetic), in_size);
  } else {
    table = weighted_table(steps, weighted, in_size, arithmetic, !transposed);
    const Step* const after = weighted + 1;
    if (after != end) table = selected(table, selection_of(after, end, weighted->a, arithmetic));
  }
  return transposed ? transpose(table) : table;
}

}  // namespace polyphase
