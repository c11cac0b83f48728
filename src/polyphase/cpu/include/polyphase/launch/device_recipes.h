// Tables of taps that are made on the device: what makes one, and how much room it takes.
#pragma once

#include <cstdint>

#include "polyphase/core/abi.h"
#include "polyphase/core/standard.h"
#include "polyphase/taps/weights.h"

namespace polyphase {

// What makes a table of taps on the device: `TapRecipe`, its enumerations and `TapsCall` of `cuda/tap_maker.h`.
enum TableForm { kWindows, kInFours, kMatricesAlongX, kMatricesAlongY };
enum TapPositions { kAntialiased, kHalfPixels, kCorners };
struct TapRecipe {
  int64_t whole, crop_first, direction, cropped, resized, cubic, begin, step, out_size, taps, quantised, form;
  int64_t positions;
  double ratio;
  int64_t first, weight;  // addresses

  bool in_matrices() const { return form == kMatricesAlongX || form == kMatricesAlongY; }
};
static_assert(sizeof(TapRecipe) == 128);
struct TapsCall {
  static constexpr int64_t kFew = 3;

  const TapRecipe* recipes;  // null for these few
  int64_t count;
  TapRecipe few[kFew];
};
constexpr int64_t kTapThreads = 256;  // of a block, which makes a table: `TAP_THREADS` of emit.py

namespace device {

// Outputs of a group, and bytes of a matrix of their weights: weight_matrices.h.
constexpr int64_t kGroup = 16, kMatrixBytes = 1024;
constexpr int64_t kBeforeTable = 16;  // bytes, which have the precision

inline int64_t parts(int64_t whole, int64_t part) { return (whole + part - 1) / part; }
inline int64_t round_up(int64_t bytes, int64_t multiple = 16) { return parts(bytes, multiple) * multiple; }

inline int64_t before_weights(int64_t out_size) { return kBeforeTable + round_up(4 * out_size); }
// What groups read takes no more room than where windows begin.
inline int64_t table_bytes(const TapRecipe& table) {
  const int64_t before = before_weights(table.out_size);
  if (table.in_matrices()) return before + parts(table.out_size, kGroup) * table.taps * kMatrixBytes;
  return before + round_up(table.out_size * table.taps * (table.form == kInFours ? 2 : 4));
}
inline void place(TapRecipe& table, int64_t address) {
  table.first = address + kBeforeTable;
  table.weight = address + before_weights(table.out_size);
}

inline double ratio_of(const TapRecipe& table) {
  if (table.positions != kAntialiased) return table.ratio;
  return static_cast<double>(table.cropped) / static_cast<double>(table.resized);
}

// Of an antialiased window. It begins and ends at whole numbers: rounding may move either by one, where the support is close
// to one.
inline int64_t most_taps(const TapRecipe& table) {
  if (table.positions != kAntialiased) return table.cubic != 0 ? 4 : 2;
  return static_cast<int64_t>((table.cubic != 0 ? 4 : 2) * max(ratio_of(table), 1.0) + 1e-4) + 1;
}

// And so many at least: one beyond each end of the filter may weigh nothing, and where the size stays as it is all but one do.
inline int64_t fewest_taps(const TapRecipe& table) {
  return table.positions != kAntialiased || table.cropped == table.resized ? 1 : max<int64_t>(1, most_taps(table) - 3);
}

// Inputs that any `count` neighbouring outputs of a triangle's windows read, at most: a window of an output at c lies in
// [c - s - 0.5, c + s + 0.5), where s is its support.
inline int64_t most_read(const TapRecipe& table, int64_t count) {
  const double ratio = ratio_of(table);
  return static_cast<int64_t>(__builtin_ceil(static_cast<double>(count - 1) * ratio + 2 * max(ratio, 1.0) + 1e-4));
}
inline int64_t most_inputs(const TapRecipe& table, int64_t count) {
  return min(table.whole, most_read(table, min(count, table.out_size)));
}

// Of windows of any filter: where `count` neighbours begin, the last less the first, and one more.
inline int64_t most_begins(const TapRecipe& table, int64_t count) {
  if (table.positions != kAntialiased) {  // a position is rounded
    return static_cast<int64_t>(__builtin_ceil(static_cast<double>(min(count, table.out_size) - 1) * table.ratio)) + 2;
  }
  const auto between = static_cast<double>((min(count, table.out_size) - 1) * table.cropped);
  return static_cast<int64_t>(__builtin_ceil(between / static_cast<double>(table.resized))) + 1;
}

// Whether a resize, upon so many pixels, can be part of a recipe, and how outputs lie then. Neighbours' weights are floats.
inline bool position(const Step& step, bool neighbours, TapRecipe& made) {
  const bool corners = (step.d & Step::kAlignCorners) != 0, whole = __builtin_isnan(step.end), linear = step.b == kBilinear;
  if (step.kind != Step::kResize || step.b > kBicubic || !whole) return false;
  if (step.c != 0) return !corners && __builtin_isnan(step.scale);
  made.positions = corners ? kCorners : kHalfPixels;
  made.ratio = polyphase::detail::resize_ratio(step, made.cropped, linear, polyphase::detail::Rounding{true});
  return neighbours;
}

// Of the steps of an axis of so many pixels, crops and flips around one resize: an antialiased one, or of `neighbours` too. False
// where there are others, or windows are wider than the axis.
inline bool recipe_of(const Step* steps, int64_t count, int64_t size, bool quantised, bool neighbours, TapRecipe& made) {
  made = {size, 0, 1, size, 0, 0, 0, 1, size, 0, quantised, kWindows, kAntialiased, 0, 0, 0};
  for (int64_t i = 0; i < count; ++i) {
    const Step& step = steps[i];
    if (step.kind == Step::kSlice && step.c == 1) {
      made.begin += made.step * step.a;
      made.out_size = step.b - step.a;
    } else if (step.kind == Step::kFlip) {
      made.begin += made.step * (made.out_size - 1);
      made.step = -made.step;
    } else if (made.resized == 0) {
      made = {size, made.begin, made.step, made.out_size, step.a,       step.b == kBicubic, 0, 1, step.a,
              0,    quantised,  kWindows,  kAntialiased,  0,            0,                  0};
      if (!position(step, neighbours, made)) return false;
    } else {
      return false;
    }
  }
  if (made.resized == 0 || made.out_size < 1 || made.cropped < 1) return false;
  made.taps = most_taps(made);
  return made.taps <= size;
}

}  // namespace device
}  // namespace polyphase
