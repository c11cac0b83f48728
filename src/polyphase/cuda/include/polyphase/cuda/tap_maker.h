// Tables of taps made on the device, a block for each: windows upon a crop, antialiased or of the nearest neighbours, as
// `sampling/windows.py` makes them by CUDA's rules, to the last bit.
#pragma once

#include <cstdint>

#include "polyphase/core/standard.h"
#include "polyphase/cuda/block.h"
#include "polyphase/cuda/call.h"
#include "polyphase/cuda/weight_matrices.h"
#include "polyphase/taps/filters.h"

namespace polyphase {

// How a table lies in memory: windows of as many taps each, which for byte_ring.h begin at multiples of 4 and have weights of
// 16 bits; or matrices (weight_matrices.h).
enum TableForm { kWindows, kInFours, kMatricesAlongX, kMatricesAlongY };

// Where outputs lie: amid antialiased windows, or between neighbours, whose weights are floats.
enum TapPositions { kAntialiased, kHalfPixels, kCorners };

// As `device_recipes.h` has it.
struct TapRecipe {
  int64_t whole;          // pixels of the axis
  int64_t crop_first;     // pixel j of what is resized is pixel crop_first + direction * j of the axis
  int64_t direction;
  int64_t in_size;        // of what is resized
  int64_t resized;        // what it becomes
  int64_t cubic;          // the filter, else a triangle
  int64_t begin;          // output i is row begin + step * i of the resize
  int64_t step;
  int64_t out_size;
  int64_t taps;           // of a window, at least as many as the filter reaches; or matrices of a group of outputs
  int64_t quantised;      // weights are integers over 2^precision, which stands before the firsts; else floats
  int64_t form;           // `TableForm`
  int64_t positions;      // `TapPositions`
  double ratio;           // of neighbours: input pixels per output pixel, a float
  int32_t* first;         // or, of matrices, the ranges of groups
  void* weight;
};

struct TapsCall {
  static constexpr int kFew = 3;

  const TapRecipe* recipes;  // null for these few, which are a call's own
  int64_t count;
  TapRecipe few[kFew];
};

template <int kThreads>
struct TapMaker {
  static void run(const TapsCall& call, const Block& block) {
    const int number = block.place().x;
    const TapRecipe recipe = call.recipes == nullptr ? call.few[number] : call.recipes[number];
    if (recipe.positions != kAntialiased) {
      if (recipe.cubic != 0) return make<Neighbours<filters::Cubic>>(recipe, filters::Cubic{-0.75}, block);
      return make<Neighbours<filters::Triangle>>(recipe, filters::Triangle{}, block);
    }
    if (recipe.cubic != 0) return make<Window<filters::Cubic>>(recipe, filters::Cubic{-0.5}, block);
    make<Window<filters::Triangle>>(recipe, filters::Triangle{}, block);
  }

 private:
  static constexpr int kMostPrecision = 22;  // ATen's limit

  // Pixels [start, stop) of a row, and how they are weighed.
  template <class Filter>
  struct Window {
    const Filter& filter;
    int64_t start, stop;
    double centre, inverse, total = 0;

    Window(const TapRecipe& recipe, const Filter& of, int64_t row) : filter(of) {
      const bool doubles = recipe.quantised != 0;
      const double exact = static_cast<double>(recipe.in_size) / static_cast<double>(recipe.resized);
      const double ratio = doubles ? exact : static_cast<float>(recipe.in_size) / static_cast<float>(recipe.resized);
      const double stretch = max(ratio, 1.0), support = Filter::kSupport * stretch;
      inverse = 1 / stretch;
      centre = ratio * (static_cast<double>(row) + 0.5);
      if (doubles) {
        bound(centre - support + 0.5, centre + support + 0.5, recipe.in_size);
      } else {  // bounds are rounded once before the half and once after it
        const double reach = static_cast<float>(support);
        bound(static_cast<float>(centre - reach) + 0.5f, static_cast<float>(centre + reach) + 0.5f, recipe.in_size);
      }
      for (int64_t pixel = start; pixel < stop; ++pixel) total += raw(pixel);
      if (total == 0) total = 1;
    }

    template <class Real>
    void bound(Real low, Real high, int64_t in_size) {
      start = low > 0 ? static_cast<int64_t>(low) : 0;
      stop = min(static_cast<int64_t>(high), in_size);
    }
    double raw(int64_t pixel) const { return filter((static_cast<double>(pixel) - centre + 0.5) * inverse); }
    double weight(int64_t pixel) const { return raw(pixel) / total; }
  };

  // The nearest 2 or 4 pixels; taps beyond the image fold onto its first or last.
  template <class Filter>
  struct Neighbours {
    static constexpr int kReach = static_cast<int>(Filter::kSupport);
    const Filter& filter;
    int64_t start, stop, left, last;
    float fraction;

    Neighbours(const TapRecipe& recipe, const Filter& of, int64_t row) : filter(of), last(recipe.in_size - 1) {
      const bool corners = recipe.positions == kCorners;
      const double along = corners ? recipe.ratio * static_cast<double>(row)
                                   : recipe.ratio * (static_cast<double>(row) + 0.5) - 0.5;
      const auto exact = static_cast<float>(along), source = kReach == 1 ? max(exact, 0.0f) : exact;
      left = source < 0 ? -1 : source < static_cast<float>(last) ? static_cast<int64_t>(source) : last;
      fraction = min(max(source - static_cast<float>(left), 0.0f), 1.0f);
      start = max(left + 1 - kReach, int64_t{0});
      stop = min(left + kReach, last) + 1;
    }

    double weight(int64_t pixel) const {
      float folded = 0;
      for (int offset = 1 - kReach; offset <= kReach; ++offset) {
        // Distances as eager rounds them: from the left neighbour, and from the right one.
        const float distance = offset > 0 ? (1 - fraction) + static_cast<float>(offset - 1)
                                          : fraction - static_cast<float>(offset);
        const int64_t place = min(max(left + offset, int64_t{0}), last);
        if (place == pixel) folded += filter(distance);
      }
      return folded;
    }
  };

  template <class Window, class Filter>
  static void make(const TapRecipe& recipe, const Filter& filter, const Block& block) {
    int precision = 0;
    if (recipe.quantised != 0) {  // by the largest weight of all rows, also of those that are cropped away
      auto* const peaks = reinterpret_cast<double*>(block.shared());
      block.each_thread([&](int thread) {
        double peak = 0;
        for (int64_t row = thread; row < recipe.resized; row += kThreads) {
          const Window window(recipe, filter, row);
          for (int64_t pixel = window.start; pixel < window.stop; ++pixel) peak = max(peak, window.weight(pixel));
        }
        peaks[thread] = peak;
      });
      for (int half = kThreads / 2; half > 0; half /= 2) {
        block.each_thread([&](int thread) {
          if (thread < half) peaks[thread] = max(peaks[thread], peaks[thread + half]);
        });
      }
      while (precision < kMostPrecision && 0.5 + peaks[0] * static_cast<double>(int64_t{2} << precision) < 32768) ++precision;
    }
    if (recipe.form == kMatricesAlongX || recipe.form == kMatricesAlongY) return make_matrices<Window>(recipe, filter, precision, block);
    block.each_thread([&](int thread) {
      if (thread == 0 && recipe.quantised != 0) recipe.first[-kBeforeTable] = precision;
      for (int64_t i = thread; i < recipe.out_size; i += kThreads) {
        store(recipe, Window(recipe, filter, recipe.begin + recipe.step * i), precision, i);
      }
    });
  }

  template <class Window>
  static void store(const TapRecipe& recipe, const Window& window, int precision, int64_t i) {
    const bool forwards = recipe.direction > 0;
    const int64_t lowest = lowest_of(recipe, window);
    const int64_t first = recipe.form == kInFours ? lowest / 4 * 4 : min(lowest, recipe.whole - recipe.taps);
    recipe.first[i] = static_cast<int32_t>(first);
    for (int64_t k = 0; k < recipe.taps; ++k) {
      const int64_t place = first + k - lowest;  // among the taps of the window
      const int64_t pixel = forwards ? window.start + place : window.stop - 1 - place;
      const double weight = place >= 0 && pixel >= window.start && pixel < window.stop ? window.weight(pixel) : 0;
      const int64_t at = i * recipe.taps + k;
      if (recipe.quantised == 0) {
        static_cast<float*>(recipe.weight)[at] = static_cast<float>(weight);
        continue;
      }
      const int32_t whole = quantised(weight, precision);
      if (recipe.form == kInFours) {
        static_cast<int16_t*>(recipe.weight)[at] = static_cast<int16_t>(whole);
      } else {
        static_cast<int32_t*>(recipe.weight)[at] = whole;
      }
    }
  }

  // The first pixel of the axis that a window reads.
  template <class Window>
  static int64_t lowest_of(const TapRecipe& recipe, const Window& window) {
    return recipe.crop_first + (recipe.direction > 0 ? window.start : 1 - window.stop);
  }

  static int32_t quantised(double weight, int precision) {
    const double scaled = weight * static_cast<double>(int64_t{1} << precision);
    return static_cast<int32_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
  }

  // Of weights that are not negative, of a precision of 16 bits at most.
  template <class Window, class Filter>
  static void make_matrices(const TapRecipe& recipe, const Filter& filter, int precision, const Block& block) {
    auto* const ranges = reinterpret_cast<GroupRange*>(recipe.first);
    auto* const matrices = static_cast<uint8_t*>(recipe.weight);
    const int64_t groups = (recipe.out_size + kGroup - 1) / kGroup, bytes = recipe.taps * WeightMatrix::kBytes;
    const auto window_of = [&](int64_t i) { return Window(recipe, filter, recipe.begin + recipe.step * i); };
    block.each_thread([&](int thread) {
      for (int64_t i = thread; i < groups * bytes / 8; i += kThreads) reinterpret_cast<uint64_t*>(matrices)[i] = 0;
      for (int64_t group = thread; group < groups; group += kThreads) {  // windows ascend or descend
        const int64_t last = min(recipe.out_size, (group + 1) * kGroup) - 1;
        const Window one = window_of(group * kGroup), other = window_of(last);
        const int64_t a = lowest_of(recipe, one), b = lowest_of(recipe, other);
        ranges[group].begin = static_cast<int32_t>(min(a, b));
        ranges[group].end = static_cast<int32_t>(max(a + (one.stop - one.start), b + (other.stop - other.start)));
      }
    });
    block.each_thread([&](int thread) {
      for (int64_t i = thread; i < recipe.out_size; i += kThreads) {
        const int64_t group = i / kGroup, begin = ranges[group].begin;
        store_row(recipe, window_of(i), precision, static_cast<int>(i % kGroup), begin, matrices + group * bytes);
      }
    });
  }

  // One output's weights, in the matrices of its group, for inputs from `begin` on.
  template <class Window>
  static void store_row(const TapRecipe& recipe, const Window& window, int precision, int output, int64_t begin,
                        uint8_t* matrices) {
    const bool along_x = recipe.form == kMatricesAlongX;
    const int row = along_x ? WeightMatrix::row_along_x(output) : WeightMatrix::row_along_y(output);
    const auto before = static_cast<int>(lowest_of(recipe, window) - begin);
    const auto count = static_cast<int>(window.stop - window.start);
    for (int k = 0; k < count; ++k) {
      const int64_t pixel = recipe.direction > 0 ? window.start + k : window.stop - 1 - k;
      const int32_t weight = min(quantised(window.weight(pixel), precision) << (16 - precision), 65535);
      const int place = before + k, input = place % kInputs;
      const int column = along_x ? WeightMatrix::column_along_x(input) : WeightMatrix::column_along_y(input);
      uint8_t* const to = matrices + place / kInputs * WeightMatrix::kBytes + WeightMatrix::high(row, column);
      to[0] = static_cast<uint8_t>(weight >> 8);
      to[WeightMatrix::kLow] = static_cast<uint8_t>(weight);
    }
  }
};

}  // namespace polyphase
