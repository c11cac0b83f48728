// The weighted step of an axis as tap table, made as `sampling/windows.py` makes it, for sizes never seen before.
//
// It is compiled at a user's first call: few headers, and only the innermost loops once for each filter.
#pragma once

#include <cstdint>

#include "polyphase/core/abi.h"
#include "polyphase/core/buffer.h"
#include "polyphase/core/standard.h"
#include "polyphase/taps/filters.h"
#include "polyphase/taps/lanes.h"
#include "polyphase/taps/progression.h"
#include "polyphase/taps/ratios.h"
#include "polyphase/taps/tap_table.h"

namespace polyphase {

namespace detail {

// ATen's limit for the number of bits after the binary point of a 16 bit weight.
constexpr int32_t kMaxPrecision = 22;

// Row i reads pixel start[i] + k with weight of(k)[i], over total[i] if there are totals, for k below `taps`. Weights may be
// 0. The weights of a tap lie side by side, and so many that several rows at a time are whole.
struct Windows {
  int64_t rows, taps, length;
  Buffer<double> start;
  Buffer<double> weight;
  Buffer<double> total;
  double peak = 0;  // the largest weight there was, also one that folding made smaller again

  Windows(int64_t rows, int64_t taps) : rows(rows), taps(taps), length(whole(rows)), start(length), weight(length * taps) {}

  static int64_t whole(int64_t rows) { return (rows + Doubles::kCount - 1) / Doubles::kCount * Doubles::kCount; }
  double* of(int64_t k) { return weight.data() + k * length; }
  const double* of(int64_t k) const { return weight.data() + k * length; }
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

  const int64_t start = max<int64_t>(left + 1 - kReach, 0);
  int64_t last = -1;
  Real folded = 0;
  for (int64_t offset = 1 - kReach; offset <= kReach; ++offset) {
    // Distances as eager rounds them: from the left neighbour, and from the right one.
    const Real distance = offset > 0 ? (1 - fraction) + static_cast<Real>(offset - 1)
                                     : fraction - static_cast<Real>(offset);
    const int64_t slot = clamp<int64_t>(left + offset, 0, in_size - 1) - start;
    folded = (slot == last ? folded : Real(0)) + kFilter(distance);
    windows.of(slot)[i] = folded;
    last = slot;
    windows.peak = max<double>(windows.peak, folded);
  }
  windows.start[i] = static_cast<double>(start);
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

// Where the filter lies of each output, and the pixels in it.
struct Places {
  Buffer<double> centre, first, stop;
  double most = 0;  // pixels of an output

  explicit Places(int64_t length) : centre(length), first(length), stop(length) {}
};

// Weighs the pixels of all outputs, where the inverse stretch is given. `most`: the greatest weight of each.
using WeighRows = void (*)(const Places& places, double inverse, Windows& windows, double* most);

template <typename Real, const auto& kFilter>
Lanes<Real> filtered(Lanes<Real> x) {
  if constexpr (kFilter.kByNumbers) {
    return {kFilter(static_cast<Real>(x.v[0])), kFilter(static_cast<Real>(x.v[1]))};
  } else {
    return kFilter(x);
  }
}

template <typename Real, const auto& kFilter>
void weigh_rows(const Places& places, double inverse, Windows& windows, double* most) {
  using Reals = Lanes<Real>;
  const int64_t length = windows.length, taps = windows.taps;
  double *const totals = windows.total.data(), *weights = windows.weight.data();
  for (int64_t i = 0; i < length; i += Doubles::kCount, weights += Doubles::kCount) {
    const Reals centre(Doubles::load(&places.centre[i]));
    const Doubles stop = Doubles::load(&places.stop[i]);
    Doubles pixel = Doubles::load(&places.first[i]), total = 0, greatest = 0;
    double* weight = weights;
    for (int64_t k = 0; k < taps; ++k, weight += length) {
      const Doubles from_centre(Reals(pixel) - centre);
      const Doubles found(filtered<Real, kFilter>(Reals((from_centre + 0.5) * inverse)));
      const Doubles inside = where(pixel < stop, found, 0);
      inside.store(weight);
      total = total + inside;  // in the order of pixels, as ATen sums
      greatest = greater(greatest, inside);
      pixel = pixel + 1;
    }
    total.store(totals + i);
    greatest.store(most + i);
  }
}

struct AntialiasFilter {
  double support;
  WeighRows weigh_rows;
};

template <typename Real, const auto& kFilter>
constexpr AntialiasFilter kAntialias = {kFilter.kSupport, weigh_rows<Real, kFilter>};

// In the order of `Filter`. Eager has no box. Its edges are found in float64 for every dtype: a pixel that lies on one must
// not change sides.
template <typename Real>
constexpr AntialiasFilter kAntialiasFilters[] = {
    kAntialias<Real, filters::kTriangle>, kAntialias<Real, filters::kAntialiasCubic>, kAntialias<double, filters::kBox>,
    kAntialias<Real, filters::kHamming>, kAntialias<Real, filters::kLanczos3>};

// `whole_pixel`, of several.
inline Doubles whole_pixels(Doubles position, double most) { return truncated(lesser(where(position > 0, position, 0), most)); }

// As eager finds them, in Real.
template <typename Real>
Places places_of(const Step& step, int64_t in_size, int64_t length, double ratio, double support) {
  using Reals = Lanes<Real>;
  Places places(length);
  Doubles most = 0, output(0.5, 1.5);
  for (int64_t i = 0; i < length; i += Doubles::kCount, output = output + Doubles::kCount) {
    const Reals centre(output * ratio + step.begin);
    const Doubles from(centre - support), to(centre + support);
    const Doubles first = whole_pixels(from + 0.5, static_cast<double>(in_size));
    const Doubles stop = whole_pixels(to + 0.5, static_cast<double>(in_size));
    Doubles(centre).store(&places.centre[i]);
    first.store(&places.first[i]);
    where(output < static_cast<double>(step.a), stop, first).store(&places.stop[i]);
    most = greater(most, stop - first);
  }
  places.most = max(most.v[0], most.v[1]);
  return places;
}

// The greatest quotient of a weight and its total. A total of 0 becomes 1.
inline double peak_of(Windows& windows, const double* most) {
  Doubles peak = 0, least = 0;
  for (int64_t i = 0; i < windows.length; i += Doubles::kCount) {
    const Doubles found = Doubles::load(&windows.total[i]), total = where(found == 0, 1, found);
    total.store(&windows.total[i]);
    peak = greater(peak, Doubles::load(most + i) / total);
    least = lesser(least, total);
  }
  double found = max(peak.v[0], peak.v[1]);
  if (min(least.v[0], least.v[1]) == 0) return found;
  for (int64_t i = 0; i < windows.rows; ++i) {  // the centre of an output lies far outside
    for (int64_t k = 0; k < windows.taps; ++k) found = max(found, windows.of(k)[i] / windows.total[i]);
  }
  return found;
}

// The filter, stretched over the input pixels of one output pixel when shrinking. Weights are to be divided by their total.
template <typename Real>
Windows antialiased(const AntialiasFilter& filter, const Step& step, int64_t in_size) {
  constexpr Rounding kRound{sizeof(Real) == sizeof(float)};
  const double ratio = resize_ratio(step, in_size, true, kRound);
  const double stretch = max(ratio, 1.0);
  Places places = places_of<Real>(step, in_size, Windows::whole(step.a), ratio, kRound(filter.support * stretch));
  Windows windows(step.a, static_cast<int64_t>(places.most));
  windows.total.resize(windows.length);
  Buffer<double> most(windows.length);
  filter.weigh_rows(places, kRound(1 / stretch), windows, most.data());
  windows.start = move(places.first);
  windows.peak = peak_of(windows, most.data());
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
    for (int64_t k = 0; k < stop - start; ++k) windows.of(k)[i] = weight;
    windows.peak = max(windows.peak, weight);
    windows.start[i] = static_cast<double>(start);
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
template <typename Real>
struct Finish {
  double one;  // 2^precision, of which it is a whole number, halves away from zero; 0 where it is not quantised

  Doubles operator()(Doubles weight) const {
    if (one == 0) return Doubles(Lanes<Real>(weight));
    const Doubles scaled = weight * one;
    return truncated(scaled + with_sign_of(0.5, scaled));
  }
};

// Divides weights by their totals and finishes them, of the rows that are wanted: of a list, of all.
template <typename Real>
void finish_rows(Windows& windows, const WantedRows& wanted, Finish<Real> finish) {
  const int64_t taps = windows.taps, length = windows.length;
  const bool listed = wanted.list != nullptr || wanted.count == 0;
  const int64_t one_end = listed ? 0 : wanted[0], other_end = listed ? windows.rows - 1 : wanted[wanted.count - 1];
  const int64_t from = min(one_end, other_end) / Doubles::kCount * Doubles::kCount, last = max(one_end, other_end);
  for (int64_t i = from; i <= last; i += Doubles::kCount) {
    const Divisor divisor(windows.total.size() == 0 ? Doubles(1) : Doubles::load(&windows.total[i]));
    double* weight = windows.of(0) + i;
    for (int64_t k = 0; k < taps; ++k, weight += length) finish(divisor.of(Doubles::load(weight))).store(weight);
  }
}

inline Progression crop_of(const Step* steps, const Step* end, int64_t in_size) {
  Progression crop = Progression::whole(in_size);
  for (const Step* step = steps; step != end; ++step) crop.then(*step);
  return crop;
}

template <typename T>
void reverse(T* values, int64_t count) {
  for (int64_t i = 0; i < count / 2; ++i) swap(values[i], values[count - 1 - i]);
}

// Rows of windows upon a crop, without their taps of weight 0.
inline void select_rows(const Progression& crop, const Windows& windows, const WantedRows& wanted, TapTable* table) {
  table->begin.resize(wanted.count + 1);
  table->index.resize(wanted.count * windows.taps);
  table->weight.resize(wanted.count * windows.taps);
  int32_t* const index = table->index.data();
  double* const weight = table->weight.data();
  const int64_t taps = windows.taps, length = windows.length;
  int32_t used = 0;
  for (int64_t i = 0; i < wanted.count; ++i) {
    const int64_t row = wanted[i], first = used;
    if (row >= 0) {
      auto pixel = static_cast<int32_t>(crop.first + crop.step * static_cast<int64_t>(windows.start[row]));
      const double* own = windows.of(0) + row;
      for (int64_t k = 0; k < taps; ++k, own += length, pixel += static_cast<int32_t>(crop.step)) {
        index[used] = pixel;
        weight[used] = *own;
        used += *own != 0;
      }
    }
    if (crop.step < 0) {
      reverse(index + first, used - first);
      reverse(weight + first, used - first);
    }
    table->begin[i + 1] = used;
  }
  table->index.resize(used);
  table->weight.resize(used);
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
    const Progression crop = detail::crop_of(steps, weighted, in_size);
    detail::Windows windows = windows_of(*weighted, crop.size, fused);
    const int32_t precision = kQuantised ? detail::precision_for(windows.peak) : 0;
    const double one = kQuantised ? static_cast<double>(int64_t{1} << precision) : 0;
    detail::finish_rows<Real>(windows, rows, {one});
    detail::select_rows(crop, windows, rows, table);
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
    if (antialias && step.b == kBox) return antialiased<double>(filter, step, in_size);
    if (antialias) return antialiased<Real>(filter, step, in_size);
    if (step.b == kBilinear) return interpolated<Real>(step, in_size, true, true, round);
    // Eager's float bicubic resamples an axis even if only its scale changes; its uint8 one does not.
    return interpolated<Real>(step, in_size, kQuantised, fused, round);
  }
};

}  // namespace polyphase
