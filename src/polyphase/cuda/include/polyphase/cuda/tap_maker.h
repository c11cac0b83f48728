// Tables of taps made on the device, a block for each: antialiased windows upon a crop, as `sampling/windows.py` makes
// them by CUDA's rules, to the last bit.
#pragma once

#include <cstdint>

#include "polyphase/core/standard.h"
#include "polyphase/cuda/block.h"
#include "polyphase/cuda/call.h"
#include "polyphase/taps/filters.h"

namespace polyphase {

// As `tables.MadeTable` packs it.
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
  int64_t taps;           // of a window, at least as many as the filter reaches
  int64_t quantised;      // weights are integers over 2^precision, which stands before the firsts; else floats
  int64_t in_fours;       // windows begin at multiples of 4, and weights have 16 bits: for byte_ring.h
  int32_t* first;
  void* weight;
};

struct TapsCall {
  const TapRecipe* recipes;
  int64_t count;
};

template <int kThreads>
struct TapMaker {
  static void run(const TapsCall& call, const Block& block) {
    const TapRecipe recipe = call.recipes[block.place().x];
    if (recipe.cubic != 0) {
      make(recipe, filters::Cubic{-0.5}, block);
    } else {
      make(recipe, filters::Triangle{}, block);
    }
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

  template <class Filter>
  static void make(const TapRecipe& recipe, const Filter& filter, const Block& block) {
    int precision = 0;
    if (recipe.quantised != 0) {  // by the largest weight of all rows, also of those that are cropped away
      auto* const peaks = reinterpret_cast<double*>(block.shared());
      block.each_thread([&](int thread) {
        double peak = 0;
        for (int64_t row = thread; row < recipe.resized; row += kThreads) {
          const Window<Filter> window(recipe, filter, row);
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
    block.each_thread([&](int thread) {
      if (thread == 0 && recipe.quantised != 0) recipe.first[-kBeforeTable] = precision;
      for (int64_t i = thread; i < recipe.out_size; i += kThreads) {
        store(recipe, Window<Filter>(recipe, filter, recipe.begin + recipe.step * i), precision, i);
      }
    });
  }

  template <class Filter>
  static void store(const TapRecipe& recipe, const Window<Filter>& window, int precision, int64_t i) {
    const bool forwards = recipe.direction > 0;
    const int64_t lowest = recipe.crop_first + (forwards ? window.start : 1 - window.stop);
    const int64_t first = recipe.in_fours != 0 ? lowest / 4 * 4 : min(lowest, recipe.whole - recipe.taps);
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
      const double scaled = weight * static_cast<double>(int64_t{1} << precision);
      const auto whole = static_cast<int32_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
      if (recipe.in_fours != 0) {
        static_cast<int16_t*>(recipe.weight)[at] = static_cast<int16_t>(whole);
      } else {
        static_cast<int32_t*>(recipe.weight)[at] = whole;
      }
    }
  }
};

}  // namespace polyphase
