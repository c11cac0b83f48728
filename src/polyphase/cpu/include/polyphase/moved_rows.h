// Rows that go from one place to another, unchanged or with their pixels moved.
#pragma once

#include <cstdint>
#include <cstring>

#include "polyphase/ahead.h"
#include "polyphase/minmax.h"

namespace polyphase {

// Strides are in bytes.
struct MovedRows {
  const uint8_t* in;
  int64_t in_stride;
  const int32_t* list;  // which rows of the input; null for one after the other
  uint8_t* out;
  int64_t out_stride;
  int64_t count;

  const uint8_t* source(int64_t r) const { return in + (list == nullptr ? r : list[r]) * in_stride; }
  uint8_t* target(int64_t r) const { return out + r * out_stride; }
  // As many of them as there are, from the r-th on.
  MovedRows from(int64_t r, int64_t most) const {
    const int64_t rows = min(most, count - r);
    if (list == nullptr) return {source(r), in_stride, nullptr, target(r), out_stride, rows};
    return {in, in_stride, list + r, target(r), out_stride, rows};
  }
};

// `bytes` of each row as they are. A call of memcpy for every row takes 1.05 to 1.3 times as long.
inline void copy_rows(const MovedRows& rows, int64_t bytes) {
  constexpr int64_t kBlock = 64;
  for (int64_t r = 0; r < rows.count; ++r) {
    const uint8_t* const in = rows.source(r);
    uint8_t* const out = rows.target(r);
    if (bytes < kBlock) {
      std::memcpy(out, in, static_cast<size_t>(bytes));
      continue;
    }
    for (int64_t at = 0; at + kBlock <= bytes; at += kBlock) {
      fetch_target(out + at);
      std::memcpy(out + at, in + at, kBlock);
    }
    std::memcpy(out + bytes - kBlock, in + bytes - kBlock, kBlock);  // some of the block before once more
  }
}

}  // namespace polyphase
