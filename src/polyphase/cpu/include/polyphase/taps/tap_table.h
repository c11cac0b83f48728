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
  Buffer<double> weight;
  Buffer<int32_t> border;  // empty where there is none
  int32_t precision = 0;
  bool index_only = false;

  int64_t out_size() const { return begin.size() - 1; }

  Taps view() const {
    const int32_t* const borders = border.size() == 0 ? nullptr : border.data();
    return {in_size, out_size(), begin.data(), index.data(), weight.data(), borders, precision, index_only};
  }

  int64_t bytes() const { return begin.bytes() + index.bytes() + weight.bytes() + border.bytes(); }
};

}  // namespace polyphase
