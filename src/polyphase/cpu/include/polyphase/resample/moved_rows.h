// Rows that go from one place to another, unchanged or with their pixels moved.
#pragma once

#include <cstdint>
#include <cstring>

#include "polyphase/core/standard.h"
#include "polyphase/resample/ahead.h"

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
  int64_t after(int64_t r) const { return min(r + 1, count - 1); }
  // As many of them as there are, from the r-th on.
  MovedRows from(int64_t r, int64_t most) const {
    const int64_t rows = min(most, count - r);
    if (list == nullptr) return {source(r), in_stride, nullptr, target(r), out_stride, rows};
    return {in, in_stride, list + r, target(r), out_stride, rows};
  }
};

#if defined(__AVX512F__)
constexpr int kRegisterBytes = 64;
#elif defined(__AVX__)
constexpr int kRegisterBytes = 32;
#else
constexpr int kRegisterBytes = 16;
#endif

// Without intrinsics, whose declarations take longer to read than all the rest of a kernel.
struct CacheLine {
  typedef int64_t Register __attribute__((vector_size(kRegisterBytes), aligned(1), may_alias));

  static void copy(const uint8_t* in, uint8_t* out) {
#pragma GCC unroll 4
    for (int64_t at = 0; at < kCacheLine; at += kRegisterBytes) {
      *reinterpret_cast<Register*>(out + at) = *reinterpret_cast<const Register*>(in + at);
    }
  }
};

// Fewer bytes than a cache line of each row, as two pieces that overlap. Which pieces is asked once: rows are many.
inline void copy_short_rows(const MovedRows& rows, int64_t bytes) {
  const auto copy_ends = [&](auto last) {
    const int64_t rest = bytes - static_cast<int64_t>(sizeof(last));
    const uint8_t* in = rows.source(0);
    uint8_t* out = rows.out;
    for (int64_t r = 0; r < rows.count; ++r, in += rows.in_stride, out += rows.out_stride) {
      if (rows.list != nullptr) in = rows.source(r);
      std::memcpy(&last, in + rest, sizeof(last));
      if (rest > 0) std::memcpy(out, in, sizeof(last));
      std::memcpy(out + rest, &last, sizeof(last));
    }
  };
  struct Half {
    uint64_t words[4];
  };
  struct Quarter {
    uint64_t words[2];
  };
  if (bytes >= 32) return copy_ends(Half());
  if (bytes >= 16) return copy_ends(Quarter());
  if (bytes >= 8) return copy_ends(uint64_t());
  if (bytes >= 4) return copy_ends(uint32_t());
  if (bytes >= 2) return copy_ends(uint16_t());
  if (bytes == 1) return copy_ends(uint8_t());
}

// Copies `bytes` of each row. A call of memcpy for every row is slower: it begins anew each time, and fetches nothing of the
// next row.
inline void copy_rows(const MovedRows& rows, int64_t bytes) {
  if (bytes < kCacheLine) return copy_short_rows(rows, bytes);
  const bool far = rows.count * bytes > kNear, ends_within_a_line = bytes % kCacheLine != 0;
  const bool backwards = kMovesInReadingOrder && rows.source(rows.count - 1) < rows.source(0);
  for (int64_t n = 0; n < rows.count; ++n) {
    const int64_t r = backwards ? rows.count - 1 - n : n;
    const int64_t next = backwards ? max<int64_t>(r - 1, 0) : rows.after(r);
    const uint8_t* const in = rows.source(r);
    uint8_t* const out = rows.target(r);
    const uint8_t* const next_in = rows.source(next);
    const uint8_t* const next_out = rows.target(next);
    for (int64_t at = 0; at + kCacheLine <= bytes; at += kCacheLine) {
      if (far) fetch_later(next_in + at);
      fetch_to_write(next_out + at);
      CacheLine::copy(in + at, out + at);
    }
    // The last line overlaps the one before.
    if (ends_within_a_line) CacheLine::copy(in + bytes - kCacheLine, out + bytes - kCacheLine);
  }
}

}  // namespace polyphase
