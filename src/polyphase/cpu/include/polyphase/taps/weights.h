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

// Memory of a thread that tables are made in: what is new to a process takes longer to write to than to compute.
class Scratch {
 public:
  Scratch() : memory_(kept()) {}
  ~Scratch() {
    if (memory_.bytes() > kMostKept) memory_ = Buffer<double>();
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // What was there stays, and may lie elsewhere.
  double* grown(int64_t doubles) {
    memory_.resize(doubles);
    return memory_.data();
  }

 private:
  static constexpr int64_t kMostKept = 1 << 20;

  static Buffer<double>& kept() {
    static thread_local Buffer<double> memory;
    return memory;
  }

  Buffer<double>& memory_;
};

// Row i reads pixel column(kFirst)[i] + k with weight of(k)[i], over column(kTotal)[i] if it is to be divided, for k below
// `taps`. Weights may be 0. Columns are as long as the rows are many, and a little longer, so that several rows at a time are
// whole.
struct Windows {
  enum Column { kFirst, kStop, kCentre, kTotal, kMost, kWeights };

  Scratch scratch;
  const int64_t rows, length;
  int64_t taps = 0;
  bool divided = false;
  double peak = 0;  // the largest weight there was, also one that folding made smaller again

  explicit Windows(int64_t count) : rows(count), length((count + Doubles::kCount - 1) / Doubles::kCount * Doubles::kCount) {
    resize(0);
  }

  // Columns may lie elsewhere afterwards.
  void resize(int64_t most_taps) {
    taps = most_taps;
    columns_ = scratch.grown((kWeights + taps) * length);
  }
  void no_weights() {
    for (int64_t i = 0; i < taps * length; ++i) of(0)[i] = 0;
  }
  double* column(Column one) const { return columns_ + one * length; }
  double* of(int64_t k) const { return columns_ + (kWeights + k) * length; }

 private:
  double* columns_;
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
  windows.column(Windows::kFirst)[i] = static_cast<double>(start);
}

// fused: not for eager's bicubic backward, which alone is built for every CPU of its architecture: on x86 without fused
// multiply-adds.
template <typename Real>
void interpolate(Windows& windows, const Step& step, int64_t in_size, bool keep_equal, bool fused, Rounding round) {
  const bool linear = step.b == kBilinear, align_corners = step.d != 0;
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

// Weighs the pixels of all outputs, where the inverse stretch is given, and finds the total and the greatest of each.
using WeighRows = void (*)(Windows& windows, double inverse);

template <typename Real, const auto& kFilter>
Lanes<Real> filtered(Lanes<Real> x) {
  if constexpr (kFilter.kByNumbers) {
    return {kFilter(static_cast<Real>(x.v[0])), kFilter(static_cast<Real>(x.v[1]))};
  } else {
    return kFilter(x);
  }
}

template <typename Real, const auto& kFilter>
void weigh_rows(Windows& windows, double inverse) {
  using Reals = Lanes<Real>;
  const int64_t length = windows.length, taps = windows.taps;
  const double *const first = windows.column(Windows::kFirst), *const stops = windows.column(Windows::kStop);
  const double* const centres = windows.column(Windows::kCentre);
  double *const totals = windows.column(Windows::kTotal), *const most = windows.column(Windows::kMost);
  double* weights = windows.of(0);
  for (int64_t i = 0; i < length; i += Doubles::kCount, weights += Doubles::kCount) {
    const Reals centre(Doubles::load(centres + i));
    const Doubles stop = Doubles::load(stops + i);
    Doubles pixel = Doubles::load(first + i), total = 0, greatest = 0;
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

// Where the filter lies of each output, and the pixels in it: as eager finds them, in Real. The most there are of an output.
template <typename Real>
int64_t find_pixels(Windows& windows, const Step& step, int64_t in_size, double ratio, double support) {
  using Reals = Lanes<Real>;
  double *const first = windows.column(Windows::kFirst), *const stops = windows.column(Windows::kStop);
  double* const centres = windows.column(Windows::kCentre);
  const auto rows = static_cast<double>(windows.rows), pixels = static_cast<double>(in_size);
  Doubles most = 0, output(0.5, 1.5);
  for (int64_t i = 0; i < windows.length; i += Doubles::kCount, output = output + Doubles::kCount) {
    const Reals centre(output * ratio + step.begin);
    const Doubles start = whole_pixels(Doubles(centre - support) + 0.5, pixels);
    const Doubles stop = whole_pixels(Doubles(centre + support) + 0.5, pixels);
    Doubles(centre).store(centres + i);
    start.store(first + i);
    where(output < rows, stop, start).store(stops + i);
    most = greater(most, stop - start);
  }
  return static_cast<int64_t>(max(most.v[0], most.v[1]));
}

// The greatest quotient of a weight and its total. A total of 0 becomes 1.
inline double peak_of(const Windows& windows) {
  double* const totals = windows.column(Windows::kTotal);
  const double* const most = windows.column(Windows::kMost);
  Doubles peak = 0, least = 0;
  for (int64_t i = 0; i < windows.length; i += Doubles::kCount) {
    const Doubles found = Doubles::load(totals + i), total = where(found == 0, 1, found);
    total.store(totals + i);
    peak = greater(peak, Doubles::load(most + i) / total);
    least = lesser(least, total);
  }
  double found = max(peak.v[0], peak.v[1]);
  if (min(least.v[0], least.v[1]) == 0) return found;
  for (int64_t i = 0; i < windows.rows; ++i) {  // the centre of an output lies far outside
    for (int64_t k = 0; k < windows.taps; ++k) found = max(found, windows.of(k)[i] / totals[i]);
  }
  return found;
}

// The filter, stretched over the input pixels of one output pixel when shrinking. Weights are to be divided by their total.
template <typename Real>
void antialias(Windows& windows, const AntialiasFilter& filter, const Step& step, int64_t in_size) {
  constexpr Rounding kRound{sizeof(Real) == sizeof(float)};
  const double ratio = resize_ratio(step, in_size, true, kRound);
  const double stretch = max(ratio, 1.0);
  windows.resize(find_pixels<Real>(windows, step, in_size, ratio, kRound(filter.support * stretch)));
  filter.weigh_rows(windows, kRound(1 / stretch));
  windows.divided = true;
  windows.peak = peak_of(windows);
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
    for (int64_t k = 0; k < stop - start; ++k) windows.of(k)[i] = weight;
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
void finish_rows(const Windows& windows, const WantedRows& wanted, Finish<Real> finish) {
  const int64_t taps = windows.taps, length = windows.length;
  const double* const totals = windows.column(Windows::kTotal);
  const bool listed = wanted.list != nullptr || wanted.count == 0;
  const int64_t one_end = listed ? 0 : wanted[0], other_end = listed ? windows.rows - 1 : wanted[wanted.count - 1];
  const int64_t from = min(one_end, other_end) / Doubles::kCount * Doubles::kCount, last = max(one_end, other_end);
  for (int64_t i = from; i <= last; i += Doubles::kCount) {
    const Divisor divisor(windows.divided ? Doubles::load(totals + i) : Doubles(1));
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
  const double* const starts = windows.column(Windows::kFirst);
  int32_t used = 0;
  for (int64_t i = 0; i < wanted.count; ++i) {
    const int64_t row = wanted[i], first = used;
    if (row >= 0) {
      auto pixel = static_cast<int32_t>(crop.first + crop.step * static_cast<int64_t>(starts[row]));
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
    detail::Windows windows(weighted->a);
    fill(windows, *weighted, crop.size, fused);
    const int32_t precision = kQuantised ? detail::precision_for(windows.peak) : 0;
    const double one = kQuantised ? static_cast<double>(int64_t{1} << precision) : 0;
    detail::finish_rows<Real>(windows, rows, {one});
    detail::select_rows(crop, windows, rows, table);
    table->in_size = in_size;
    table->precision = precision;
  }

 private:
  static void fill(detail::Windows& windows, const Step& step, int64_t in_size, bool fused) {
    using namespace detail;
    if (step.kind == Step::kArea) return average(windows, step, in_size, kRound);
    const bool antialiased = step.c != 0;
    const AntialiasFilter& filter = kAntialiasFilters<Real>[step.b];
    if (antialiased && step.b == kBox) return antialias<double>(windows, filter, step, in_size);
    if (antialiased) return antialias<Real>(windows, filter, step, in_size);
    if (step.b == kBilinear) return interpolate<Real>(windows, step, in_size, true, true, kRound);
    // Eager's float bicubic resamples an axis even if only its scale changes; its uint8 one does not.
    interpolate<Real>(windows, step, in_size, kQuantised, fused, kRound);
  }
};

}  // namespace polyphase
