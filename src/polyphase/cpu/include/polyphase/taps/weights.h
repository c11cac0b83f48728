// The weighted step of an axis as tap table, made as `sampling/windows.py` makes it, for sizes never seen before.
//
// It is compiled at a user's first call: few headers, and only the innermost loops once for each filter.
#pragma once

#include <cstdint>

#include "polyphase/core/abi.h"
#include "polyphase/core/buffer.h"
#include "polyphase/core/standard.h"
#include "polyphase/core/unroll.h"
#include "polyphase/taps/filters.h"
#include "polyphase/taps/lanes.h"
#include "polyphase/taps/progression.h"
#include "polyphase/taps/ratios.h"
#include "polyphase/taps/tap_table.h"

namespace polyphase {

namespace detail {

// ATen's limit for the number of bits after the binary point of a 16 bit weight.
constexpr int32_t kMaxPrecision = 22;

// Output i reads pixels from column(kFirst)[i] on, with weight(i, k), over column(kTotal)[i] if they are to be divided, for
// k below `taps`. Weights may be 0. The outputs of a register lie side by side, tap after tap, and columns are as long as
// whole registers are.
struct Windows {
  enum Column { kFirst, kTotal, kReciprocal, kColumns };

  Kept<Buffer<double>> memory;
  const int64_t rows, length;
  int64_t taps = 0;
  bool divided = false;
  double peak = 0;  // the largest weight there was, also one that folding made smaller again; of a quotient but for a few ulps
  bool negative = false;  // whether a total is

  explicit Windows(int64_t count) : rows(count), length((count + Doubles::kCount - 1) / Doubles::kCount * Doubles::kCount) {}

  void resize(int64_t most_taps) {
    taps = most_taps;
    memory->resize((kColumns + taps) * length);
    columns_ = memory->data();
  }
  void no_weights() {
    for (int64_t i = 0; i < taps * length; ++i) weights(0)[i] = 0;
  }
  double* column(Column one) const { return columns_ + one * length; }
  // Of the outputs of a register, from tap 0 on.
  double* weights(int64_t row) const { return columns_ + kColumns * length + (row - lane(row)) * taps; }
  double& weight(int64_t row, int64_t k) const { return weights(row)[k * Doubles::kCount + lane(row)]; }
  // Likewise of weights that are finished, in the place of the others.
  template <typename Weight>
  Weight* finished(int64_t row) const {
    return reinterpret_cast<Weight*>(weights(0)) + (row - lane(row)) * taps;
  }
  static int64_t lane(int64_t row) { return row & (Doubles::kCount - 1); }

 private:
  double* columns_;
};

inline double resize_ratio(const Step& step, int64_t in_size, bool keep_equal, Rounding round) {
  const bool align_corners = (step.d & Step::kAlignCorners) != 0;
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
    windows.weight(i, slot) = folded;
    last = slot;
    windows.peak = max<double>(windows.peak, folded);
  }
  windows.column(Windows::kFirst)[i] = static_cast<double>(start);
}

// fused: not for eager's bicubic backward, which alone is built for every CPU of its architecture: on x86 without fused
// multiply-adds.
template <typename Real>
void interpolate(Windows& windows, const Step& step, int64_t in_size, bool keep_equal, bool fused, Rounding round) {
  const bool linear = step.b == kBilinear, align_corners = (step.d & Step::kAlignCorners) != 0;
  const auto interpolate_one =
      linear ? interpolate_row<Real, filters::kTriangle> : interpolate_row<Real, filters::kPlainCubic>;
  const double ratio = resize_ratio(step, in_size, keep_equal, round);
  windows.resize(linear ? 2 : 4);
  windows.no_weights();
  for (int64_t i = 0; i < step.a; ++i) {
    const double centre = static_cast<double>(i) + 0.5;
    const double source = align_corners ? round(ratio * static_cast<double>(i) + step.begin)
                          : fused       ? round(half_pixel_source(step, ratio, i))
                                        : round(round(ratio * centre + step.begin) - 0.5);
    interpolate_one(windows, i, linear ? max(source, 0.0) : source, in_size);
  }
}

// Where a filter lies. Lengths are in input pixels.
struct Stretched {
  double begin, ratio;  // output i has its centre at (i + 0.5) * ratio + begin
  double support;
  double inverse;  // of the stretch
  double pixels;   // of the input
};

// `whole_pixel`, of several.
inline Doubles whole_pixels(Doubles position, double most) { return truncated(lesser(greater(0, position), most)); }

template <typename Real, const auto& kFilter>
Lanes<Real> filtered(Lanes<Real> x) {
  if constexpr (kFilter.kByNumbers) {
    return {kFilter(static_cast<Real>(x.low[0])), kFilter(static_cast<Real>(x.low[1])), kFilter(static_cast<Real>(x.high[0])),
            kFilter(static_cast<Real>(x.high[1]))};
  } else {
    return kFilter(x);
  }
}

// Finds the pixels of all outputs, as eager does, in Real, and weighs so many of each as windows have taps. Returns how many
// there are at most. kFloatEdges: where windows begin and end is rounded to floats, before and after the half is added.
template <typename Real, const auto& kFilter, bool kFloatEdges>
int64_t weigh_rows(Windows& windows, const Stretched& filter) {
  using Reals = Lanes<Real>;
  const int64_t length = windows.length, taps = windows.taps;
  double *const first = windows.column(Windows::kFirst);
  double *const totals = windows.column(Windows::kTotal), *const reciprocals = windows.column(Windows::kReciprocal);
  double* weight = windows.weights(0);
  const auto rows = static_cast<double>(windows.rows);
  const Reals support = filter.support;
  const Doubles ratio = filter.ratio, begin = filter.begin, inverse = filter.inverse;
  const auto edge = [&filter](Reals position) {
    if constexpr (!kFloatEdges) return whole_pixels(Doubles(position) + 0.5, filter.pixels);
    using Floats = Lanes<float>;
    return whole_pixels(Doubles(Floats(Doubles(Floats(position)) + 0.5)), filter.pixels);
  };
  Doubles output(0.5, 1.5, 2.5, 3.5), most = 0, peak = 0, least = 0;
  for (int64_t i = 0; i < length; i += Doubles::kCount, output = output + Doubles::kCount) {
    const Reals centre(output * ratio + begin);
    const Doubles start = edge(centre - support), end = edge(centre + support);
    const Doubles stop = where(output < rows, end, start);
    Doubles pixel = start, sum = 0, greatest = 0;
    for (int64_t k = 0; k < taps; ++k, weight += Doubles::kCount) {
      const Doubles from_centre(Reals(pixel) - centre);
      const Doubles found(filtered<Real, kFilter>(Reals((from_centre + 0.5) * inverse)));
      const Doubles inside = where(pixel < stop, found, 0);
      inside.store(weight);
      sum = sum + inside;  // in the order of pixels, as ATen sums
      greatest = greater(greatest, inside);
      pixel = pixel + 1;
    }
    const Doubles total = where(sum == 0, 1, sum);
    const Divisor divisor(total);
    start.store(first + i);
    total.store(totals + i);
    divisor.reciprocal().store(reciprocals + i);
    most = greater(most, stop - start);
    peak = greater(peak, greatest * divisor.reciprocal());
    least = lesser(least, total);
  }
  windows.peak = peak.greatest();
  windows.negative = least.least() < 0;  // a centre that lies far outside
  return static_cast<int64_t>(most.greatest());
}

struct AntialiasFilter {
  double support;
  int64_t (*weigh_rows)(Windows& windows, const Stretched& filter);
};

template <typename Real, const auto& kFilter, bool kFloatEdges = false>
constexpr AntialiasFilter kAntialias = {kFilter.kSupport, weigh_rows<Real, kFilter, kFloatEdges>};

// In the order of `Filter`. Eager has no box. Its edges are found in float64 for every dtype: a pixel that lies on one must
// not change sides.
template <typename Real, bool kFloatEdges>
constexpr AntialiasFilter kAntialiasFilters[] = {
    kAntialias<Real, filters::kTriangle, kFloatEdges>, kAntialias<Real, filters::kAntialiasCubic, kFloatEdges>,
    kAntialias<double, filters::kBox>, kAntialias<Real, filters::kHamming, kFloatEdges>,
    kAntialias<Real, filters::kLanczos3, kFloatEdges>};

// The filter, stretched over the input pixels of one output pixel when shrinking. Weights are to be divided by their total.
// of_edges: what the ratio is rounded to, and how far the filter reaches.
template <typename Real>
void antialias(Windows& windows, const AntialiasFilter& filter, const Step& step, int64_t in_size, Rounding of_edges) {
  constexpr Rounding kRound{sizeof(Real) == sizeof(float)};
  const double ratio = resize_ratio(step, in_size, true, of_edges), stretch = max(ratio, 1.0);
  const auto pixels = static_cast<double>(in_size);
  const Stretched stretched = {step.begin, ratio, of_edges(filter.support * stretch), kRound(1 / stretch), pixels};
  // So many pixels lie under the filter, unless rounding puts one more there.
  windows.resize(static_cast<int64_t>(__builtin_ceil(min(2 * stretched.support, pixels))));
  const int64_t most = filter.weigh_rows(windows, stretched);
  if (most > windows.taps) {
    windows.resize(most);
    filter.weigh_rows(windows, stretched);
  }
  windows.divided = true;
}

// The mean of the input pixels each output pixel touches.
inline void average(Windows& windows, const Step& step, int64_t in_size, Rounding round) {
  const int64_t size = step.a;
  windows.resize(min((in_size + size - 1) / size + 1, in_size));
  windows.no_weights();
  for (int64_t i = 0; i < size; ++i) {
    const int64_t start = i * in_size / size;
    const int64_t stop = ((i + 1) * in_size + size - 1) / size;
    const double weight = round(1 / round(stop - start));
    for (int64_t k = 0; k < stop - start; ++k) windows.weight(i, k) = weight;
    windows.peak = max(windows.peak, weight);
    windows.column(Windows::kFirst)[i] = static_cast<double>(start);
  }
}

// The most bits after the binary point that leave the largest weight within 16 bits.
inline int32_t precision_for(double peak) {
  int32_t bits = 0;
  while (bits < kMaxPrecision && 0.5 + peak * static_cast<double>(int64_t{2} << bits) < 32768) ++bits;
  return bits;
}

// Where a few ulps of the peak may decide, or weights change their sign, these are divided one by one.
inline int32_t precision_of(const Windows& windows) {
  constexpr double kFewUlps = 0x1p-48;
  const int32_t least = precision_for(windows.peak * (1 + kFewUlps)), most = precision_for(windows.peak * (1 - kFewUlps));
  if (!windows.divided) return precision_for(windows.peak);
  if (least == most && !windows.negative) return least;
  double peak = 0;
  for (int64_t i = 0; i < windows.rows; ++i) {
    const double total = windows.column(Windows::kTotal)[i];
    for (int64_t k = 0; k < windows.taps; ++k) peak = max(peak, windows.weight(i, k) / total);
  }
  return precision_for(peak);
}

// What becomes of weights at last: numbers of their sampler's type, or whole ones, halves away from zero.
template <typename Real>
void store_finished(Doubles weights, double* to) {
  Doubles(Lanes<Real>(weights)).store(to);
}
template <typename Real>
void store_finished(Doubles weights, int16_t* to) {
  store_shorts(weights + with_sign_of(0.5, weights), to);
}

// Divides weights by their totals, so that they are of `one`, a power of two, and finishes them, of the rows that are wanted:
// of a list, of all. Where they are smaller than they were, they are written behind those that are read.
template <typename Real, typename Weight>
void finish_rows(const Windows& windows, const WantedRows& wanted, double one) {
  const int64_t taps = windows.taps;
  const double *const totals = windows.column(Windows::kTotal), *const reciprocals = windows.column(Windows::kReciprocal);
  const bool listed = wanted.list != nullptr || wanted.count == 0;
  const int64_t one_end = listed ? 0 : wanted[0], other_end = listed ? windows.rows - 1 : wanted[wanted.count - 1];
  const int64_t from = min(one_end, other_end), last = max(one_end, other_end);
  const Doubles share = 1 / one;
  const double* weight = windows.weights(from);
  Weight* finished = windows.finished<Weight>(from);
  for (int64_t i = from - Windows::lane(from); i <= last; i += Doubles::kCount) {
    const Doubles total = windows.divided ? Doubles::load(totals + i) : Doubles(1);
    const Doubles reciprocal = windows.divided ? Doubles::load(reciprocals + i) : Doubles(1);
    const Divisor divisor(total * share, reciprocal * one);
    for (int64_t k = 0; k < taps; ++k, weight += Doubles::kCount, finished += Doubles::kCount) {
      store_finished<Real>(divisor.of(Doubles::load(weight)), finished);
    }
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

// Rows of windows upon a crop, without their taps of weight 0. kTaps: of each, 0 for any number. What the loop reads is read
// before it: a number that is stored may be any of it, as far as the compiler knows.
template <typename Weight, int kTaps>
void select_rows(const Progression& crop, const Windows& windows, const WantedRows& rows, TapTable* table) {
  const int64_t taps = kTaps > 0 ? kTaps : windows.taps;
  const WantedRows wanted = rows;
  const Progression pixels = crop;
  Buffer<Weight>& weights = table->weights(static_cast<const Weight*>(nullptr));
  int32_t *const begin = table->begin.data(), *const index = table->index.data();
  Weight* const weight = weights.data();
  const double* const starts = windows.column(Windows::kFirst);
  const Weight* const finished = windows.finished<Weight>(0);
  const auto step = static_cast<int32_t>(pixels.step);
  int64_t used = 0;
  for (int64_t i = 0; i < wanted.count; ++i) {
    const int64_t row = wanted[i];
    begin[i] = static_cast<int32_t>(used);
    if (row < 0) continue;
    const int64_t lane = Windows::lane(row);
    const Weight* const own = finished + (row - lane) * taps + lane;
    auto pixel = static_cast<int32_t>(pixels.first + pixels.step * static_cast<int64_t>(starts[row]));
    const auto add = [&](int64_t k) {
      const Weight found = own[k * Doubles::kCount];
      index[used] = pixel;
      weight[used] = found;
      used += found != 0;
      pixel += step;
    };
    if constexpr (kTaps > 0) {
      repeat<kTaps>(add);
    } else {
      for (int64_t k = 0; k < taps; ++k) add(k);
    }
  }
  begin[wanted.count] = static_cast<int32_t>(used);
  for (int64_t i = 0; step < 0 && i < wanted.count; ++i) {
    reverse(index + begin[i], begin[i + 1] - begin[i]);
    reverse(weight + begin[i], begin[i + 1] - begin[i]);
  }
  table->index.resize(used);
  weights.resize(used);
}

}  // namespace detail

// Tap tables of weighted steps, in one arithmetic.
template <TapArithmetic kArithmetic>
struct Weights {
  static constexpr bool kInDouble = kArithmetic == TapArithmetic::kFloat32InDouble;
  static constexpr bool kQuantised = kArithmetic == TapArithmetic::kQuantised;
  using Real = Conditional<kArithmetic == TapArithmetic::kFloat32 || kInDouble, float, double>;
  using Weight = Conditional<kQuantised, int16_t, double>;
  static constexpr detail::Rounding kRound{sizeof(Real) == sizeof(float)};

  // The step `weighted`, and the crops and flips before it. fused: see `interpolated`.
  static void weigh(const Step* steps, const Step* weighted, int64_t in_size, bool fused, const WantedRows& rows,
                    TapTable* table) {
    const Progression crop = detail::crop_of(steps, weighted, in_size);
    detail::Windows windows(weighted->a);
    fill(windows, *weighted, crop.size, fused);
    const int32_t precision = kQuantised ? detail::precision_of(windows) : 0;
    detail::finish_rows<Real, Weight>(windows, rows, static_cast<double>(int64_t{1} << precision));
    table->begin.resize(rows.count + 1);
    table->index.resize(rows.count * windows.taps);
    table->exact.resize(kQuantised ? 0 : rows.count * windows.taps);
    table->quantised.resize(kQuantised ? rows.count * windows.taps : 0);
    with_constant<2, 6>(static_cast<int>(windows.taps),
                        [&](auto taps) { detail::select_rows<Weight, taps>(crop, windows, rows, table); });
    table->in_size = in_size;
    table->precision = precision;
  }

  // That `weigh` would find, of quantised weights.
  static int32_t precision(const Step* steps, const Step* weighted, int64_t in_size) {
    detail::Windows windows(weighted->a);
    fill(windows, *weighted, detail::crop_of(steps, weighted, in_size).size, true);
    return detail::precision_of(windows);
  }

 private:
  static void fill(detail::Windows& windows, const Step& step, int64_t in_size, bool fused) {
    using namespace detail;
    if (step.kind == Step::kArea) return average(windows, step, in_size, kRound);
    const bool antialiased = step.c != 0;
    using Antialiased = Conditional<kInDouble, double, Real>;
    const AntialiasFilter& filter = kAntialiasFilters<Antialiased, kInDouble>[step.b];
    if (antialiased && step.b == kBox) return antialias<double>(windows, filter, step, in_size, Rounding{false});
    if (antialiased) return antialias<Antialiased>(windows, filter, step, in_size, kRound);
    if (step.b == kBilinear) return interpolate<Real>(windows, step, in_size, true, true, kRound);
    // Eager's float bicubic resamples an axis even if only its scale changes; its uint8 one does not.
    interpolate<Real>(windows, step, in_size, kQuantised, fused, kRound);
  }
};

}  // namespace polyphase
