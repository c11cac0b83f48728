// Which pass comes first: what the horizontal one costs before and after the vertical one.
#pragma once

#include "polyphase/abi.h"
#include "polyphase/standard.h"

namespace polyphase {

inline bool weighted(const Axis& axis) { return axis.taps != nullptr && axis.taps->index_only == 0; }

inline double mean_taps(const Axis& axis) {
  return weighted(axis) ? static_cast<double>(axis.taps->begin[axis.out_size]) / axis.out_size : 1;
}

// A tap of the horizontal pass takes about as long as this many of the vertical one (a permutation, an index), and where
// a row shrinks beyond 2x, its taps lying apart, as this many.
constexpr double kHorizontalCost = 2.0, kApartCost = 2.9;

// Whether it is cheaper to resample each input row horizontally than each sum of input rows.
inline bool horizontal_first_is_cheaper(const Call& call) {
  if (!weighted(call.x) || !weighted(call.y)) return false;
  if (weighted(call.z)) return false;  // rows would be resampled again for every y: depth has no memory of planes
  const double rows_out = call.y.out_size;
  const double rows_in = min<double>(call.y.in_size, rows_out * mean_taps(call.y));  // that are read at all
  const double in_length = call.x.in_size, out_length = call.x.out_size;
  const double cost = in_length > 2 * out_length ? kApartCost : kHorizontalCost;
  const double horizontal = cost * mean_taps(call.x) * out_length;
  const double first = rows_in * horizontal + rows_out * mean_taps(call.y) * out_length;
  const double last = rows_out * horizontal + rows_out * mean_taps(call.y) * in_length;
  return first < last;
}

}  // namespace polyphase
