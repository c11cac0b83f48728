// Weighted sums of float and double rows: the vertical pass.
#pragma once

#include "polyphase/core/abi.h"
#include "polyphase/core/standard.h"
#include "polyphase/core/unroll.h"
#include "polyphase/resample/ahead.h"
#include "polyphase/simd/vector.h"

namespace polyphase {

// Several rows to be summed.
template <class T>
struct Summands {
  const T* const* rows;
  const T* weights;
  int count;
};

// How many vectors of a row are summed together. A weight is loaded, and a row found, once for all of them.
template <class V>
constexpr int kSummedTogether = sizeof(V) == 16 ? 8 : 4;

template <int kVectors, class T>
POLYPHASE_BLOCK void sum_vectors(const T* const* rows, const T* weights, int taps, int64_t i, T* out) {
  using V = Vec<T>;
  V sums[kVectors];
  repeat<kVectors>([&](auto v) { sums[v] = V::zero(); });
  for (int k = 0; k < taps; ++k) {
    const V weight = V::broadcast(weights[k]);
    const T* row = rows[k] + i;
    repeat<kVectors>([&](auto v) { sums[v] = multiply_add(V::load(row + v * V::kLanes), weight, sums[v]); });
  }
  repeat<kVectors>([&](auto v) { sums[v].store(out + v * V::kLanes); });
}

// out[i] = sum over k of weights[k] * rows[k][i], in the order of k. No weight is 0.
template <class T>
POLYPHASE_ROW_LOOP void vertical(const T* const* rows, const T* weights, int taps, T* out, int64_t length,
                                 const Ahead* ahead = nullptr) {
  using V = Vec<T>;
  constexpr int kVectors = kSummedTogether<V>, kStep = kVectors * V::kLanes;
  int64_t i = 0;
  for (; i + kStep <= length; i += kStep) {
    for (int64_t a = 0; kFetchesWhileSumming && ahead != nullptr && a < ahead->count; ++a) {
      const uint8_t* row = ahead->first + a * ahead->stride + i * static_cast<int64_t>(sizeof(T));
      for (int64_t j = 0; j < kStep * static_cast<int64_t>(sizeof(T)); j += kCacheLine) __builtin_prefetch(row + j);
    }
    sum_vectors<kVectors>(rows, weights, taps, i, out + i);
  }
  if constexpr (kVectors > 4) {
    if (i + kStep / 2 <= length) {
      sum_vectors<kVectors / 2>(rows, weights, taps, i, out + i);
      i += kStep / 2;
    }
  }
  for (; i + V::kLanes <= length; i += V::kLanes) sum_vectors<1>(rows, weights, taps, i, out + i);
  if (i == length) return;
  if (length >= V::kLanes) {  // the last vector overlaps the one before
    const int64_t last = length - V::kLanes;
    return sum_vectors<1>(rows, weights, taps, last, out + last);
  }
  const int all = static_cast<int>(length);
  V sum = V::zero();
  for (int k = 0; k < taps; ++k) sum = multiply_add(V::load_first(rows[k], all), V::broadcast(weights[k]), sum);
  sum.store_first(out, all);
}

// The same for elements from, from + 1, ... of the rows: `length` of them, a vector at least.
template <class T>
POLYPHASE_BLOCK void vertical_from(const T* const* rows, int64_t from, const T* weights, int taps, T* out,
                                   int64_t length) {
  using V = Vec<T>;
  constexpr int kStep = 4 * V::kLanes;
  int64_t i = 0;
  for (; i + kStep <= length; i += kStep) sum_vectors<4>(rows, weights, taps, from + i, out + i);
  for (; i < length; i += V::kLanes) {
    const int64_t at = min(i, length - V::kLanes);
    sum_vectors<1>(rows, weights, taps, from + at, out + at);
  }
}

}  // namespace polyphase
