#pragma once

#include <cstdint>

#include "polyphase/core/abi.h"
#include "polyphase/core/buffer.h"

namespace polyphase {

// Owns what a `Taps` points at.
struct TapTable {
  int64_t in_size = 0;
  Buffer<int32_t> begin;  // out_size + 1
  Buffer<int32_t> index;
  Buffer<double> exact;  // one of both is empty
  Buffer<int16_t> quantised;
  Buffer<int32_t> border;  // empty where there is none
  int32_t precision = 0;
  bool index_only = false;

  int64_t out_size() const { return begin.size() - 1; }

  Taps view() const {
    const int32_t* const borders = border.size() == 0 ? nullptr : border.data();
    const double* const doubles = exact.size() == 0 ? nullptr : exact.data();
    const int16_t* const shorts = quantised.size() == 0 ? nullptr : quantised.data();
    return {in_size, out_size(), begin.data(), index.data(), doubles, shorts, borders, precision, index_only};
  }

  int64_t bytes() const { return begin.bytes() + index.bytes() + exact.bytes() + quantised.bytes() + border.bytes(); }

  // Of this type.
  Buffer<double>& weights(const double*) { return exact; }
  Buffer<int16_t>& weights(const int16_t*) { return quantised; }
};

}  // namespace polyphase
