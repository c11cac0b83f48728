// The tap table of one axis, made as `sampling/evaluate.py` makes it: a sampler weighs, here pixels are selected.
#pragma once

#include <cstdint>

#include "polyphase/core/abi.h"
#include "polyphase/core/buffer.h"
#include "polyphase/core/standard.h"
#include "polyphase/taps/progression.h"
#include "polyphase/taps/ratios.h"
#include "polyphase/taps/tap_table.h"

namespace polyphase {

// What an axis goes through.
struct AxisRequest {
  int64_t channels;       // of a pixel, that are wanted; 0 where the axis is not read horizontally
  int64_t pixel;          // its elements; 0 likewise
  int64_t element_bytes;  // 0 likewise
  int64_t in_size;        // of the map itself, also where its adjoint is wanted
  int64_t transposed;
  int64_t step_count;
  const Step* steps;  // in order and in the normal form; they fit the size
};

namespace detail {

// ---- Index-only steps ------------------------------------------------------------------------

// For each output the row it takes, or minus the number of its constant border.
using Selection = Buffer<int32_t>;

template <typename Source>
Selection select(int64_t size, Source source) {
  Selection selection(size);
  for (int64_t i = 0; i < size; ++i) selection[i] = static_cast<int32_t>(source(i));
  return selection;
}

// A step on an axis of a known size. `source` is where its output i comes from, or minus the number of a border.
struct IndexOnly {
  const Step* step;
  int64_t in_size, out_size;
  double ratio = 0;  // of nearest

  IndexOnly() = default;
  IndexOnly(const Step& made, int64_t size, Rounding round) : step(&made), in_size(size), out_size(size) {
    switch (made.kind) {
      case Step::kFlip: break;
      case Step::kSlice: out_size = (made.b - made.a + made.c - 1) / made.c; break;
      case Step::kPad: out_size = made.a + size + made.b; break;
      default: {
        out_size = made.a;
        ratio = scaled_ratio(made, size, false, round);
      }
    }
  }

  int64_t source(int64_t i) const {
    switch (step->kind) {
      case Step::kFlip: return in_size - 1 - i;
      case Step::kSlice: return step->a + i * step->c;
      case Step::kPad: return padded(i - step->a);
      default: {
        const bool exact = step->b != 0;
        const double along =
            exact ? half_pixel_source(*step, ratio, i) : ratio * static_cast<double>(i) + step->begin;
        const float position = static_cast<float>(along);
        return whole_pixel(exact ? max(position, 0.0f) + 0.5f : position, in_size - 1);
      }
    }
  }

 private:
  int64_t padded(int64_t place) const {
    const int64_t last = in_size - 1;
    switch (step->c) {
      case kReflect: return last - __builtin_llabs(__builtin_llabs(place) - last);
      case kReplicate: return clamp<int64_t>(place, 0, last);
      case kCircular: {  // what is left after a crop is what repeats
        const int64_t first = max<int64_t>(-step->a, 0);
        const int64_t length = in_size - first - max<int64_t>(-step->b, 0);
        const int64_t remainder = (place - first) % length;
        return first + (remainder < 0 ? remainder + length : remainder);
      }
      case kSymmetric: {
        const int64_t mirrored = place < 0 ? -1 - place : place;
        return min(mirrored, 2 * in_size - 1 - mirrored);
      }
      default: return place >= 0 && place < in_size ? place : -step->d;
    }
  }
};

// Of a whole axis, by eager's older rule: as `IndexOnly` has it, one by one.
inline Selection nearest_of(const Step& step, int64_t in_size, Rounding round) {
  const double ratio = scaled_ratio(step, in_size, false, round), begin = step.begin;
  const auto last = static_cast<int32_t>(in_size - 1);
  const auto most = static_cast<float>(last);
  Selection selection;
  selection.resize_unset(step.a);
  int32_t* const pixels = selection.data();
  for (int64_t i = 0, count = step.a; i < count; ++i) {  // `whole_pixel`, without a call
    const auto position = static_cast<float>(ratio * static_cast<double>(i) + begin);
    pixels[i] = !(position > 0) ? 0 : position < most ? static_cast<int32_t>(position) : last;
  }
  return selection;
}

// round: how the nearest pixel is found. Outputs are followed back through the steps: nothing is as long as the input. Of
// borders around borders the one with the greater number wins.
inline Selection selection_of(const Step* steps, const Step* end, int64_t in_size, Rounding round) {
  if (end - steps == 1 && steps->kind == Step::kNearest && steps->b == 0) return nearest_of(*steps, in_size, round);
  Buffer<IndexOnly> chain(end - steps);
  int64_t size = in_size;
  for (int64_t s = 0; s < chain.size(); ++s) {
    chain[s] = IndexOnly(steps[s], size, round);
    size = chain[s].out_size;
  }
  return select(size, [&](int64_t i) {
    int64_t border = 0;
    for (int64_t s = chain.size() - 1; s >= 0; --s) {
      const int64_t source = chain[s].source(i);
      if (source >= 0) {
        i = source;
        continue;
      }
      border = max(border, -source);
      if (chain[s].in_size == 0) break;
      i = clamp<int64_t>(i - chain[s].step->a, 0, chain[s].in_size - 1);
    }
    return border > 0 ? -border : i;
  });
}

// Empty where there is none.
inline Buffer<int32_t> borders_of(const Selection& selection) {
  int32_t least = 0;
  for (const int32_t row : selection) least = min(least, row);
  return select(least < 0 ? selection.size() : 0, [&](int64_t i) { return max(-selection[i], 0); });
}

inline void fill_index_only(const Selection& selection, int64_t in_size, TapTable* table) {
  table->in_size = in_size;
  table->precision = 0;
  table->index_only = true;
  table->border = borders_of(selection);
  table->begin.resize(selection.size() + 1);
  table->index.resize(selection.size());
  int32_t used = table->begin[0] = 0;
  for (int64_t i = 0; i < selection.size(); ++i) {
    table->index[used] = selection[i];
    used += selection[i] >= 0;
    table->begin[i + 1] = used;
  }
  table->index.resize(used);
  table->exact.fill(used, 1.0);
  table->quantised.resize(0);
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
  result.exact.resize(table.exact.size());
  for (const int32_t pixel : table.index) ++result.begin[pixel + 1];
  for (int64_t j = 0; j < table.in_size; ++j) result.begin[j + 1] += result.begin[j];

  Buffer<int32_t> places;
  places.assign(result.begin.data(), table.in_size);
  int32_t *const next = places.data(), *const index = result.index.data();
  double* const weight = result.exact.data();
  for (int64_t i = 0; i < table.out_size(); ++i) {
    for (int32_t t = table.begin[i]; t < table.begin[i + 1]; ++t) {
      const int32_t place = next[table.index[t]]++;
      index[place] = static_cast<int32_t>(i);
      weight[place] = table.exact[t];
    }
  }
  result.index_only = table.index_only && has_one_tap_per_row(result);
  return result;
}

// As `RULES` of calls/rules.py.
#if defined(__aarch64__)
constexpr bool kEveryCpuFuses = true;
#else
constexpr bool kEveryCpuFuses = false;
#endif

inline bool is_weighted(const Step& step) { return step.kind == Step::kResize || step.kind == Step::kArea; }

// Of the map itself.
inline void fill_taps(const AxisRequest& request, const Sampler& sampler, TapTable* table) {
  const Rounding nearest{!sampler.nearest_in_double};
  const Step* const end = request.steps + request.step_count;
  const Step* weighted = request.steps;
  while (weighted != end && !is_weighted(*weighted)) ++weighted;
  if (weighted == end) {
    return fill_index_only(selection_of(request.steps, end, request.in_size, nearest), request.in_size, table);
  }
  const Step* after = weighted + 1;
  Progression wanted = Progression::whole(weighted->a);
  while (after != end && wanted.then(*after)) ++after;
  const Selection list = after == end ? Selection() : selection_of(weighted + 1, end, weighted->a, nearest);
  const WantedRows rows = {list.data(), wanted.first, wanted.step, after == end ? wanted.size : list.size()};
  const bool fused = request.transposed == 0 || kEveryCpuFuses || sampler.fuses_backward;
  sampler.weigh(request.steps, weighted, request.in_size, fused, rows, table);
  table->index_only = false;
  table->border = borders_of(list);
}

}  // namespace detail

// The taps of an axis map, or of its adjoint (not where values are quantised), in the place of what a table had.
inline void make_taps(const AxisRequest& request, const Sampler& sampler, TapTable* table) {
  detail::fill_taps(request, sampler, table);
  if (request.transposed != 0) *table = detail::transpose(*table);
}

}  // namespace polyphase
