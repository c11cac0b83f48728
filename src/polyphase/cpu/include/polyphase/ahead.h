// Rows that will be read soon, and come from far away: fetched while something else is computed. Where there are none, a
// function is given a null pointer.
#pragma once

#include <cstdint>

#include "polyphase/abi.h"

namespace polyphase {

constexpr int64_t kCacheLine = 64;  // bytes

// Bytes of an image that, used a moment ago, lies in the second-level cache.
constexpr int64_t kNear = 256 << 10;

struct Ahead {
  const uint8_t* first;
  int64_t row_bytes;
  int64_t stride;  // bytes
  int64_t count;

  int64_t bytes() const { return count * row_bytes; }
};

// A cache line that is read after some hundred others, of an image that comes from far away.
inline void fetch_later(const void* in) { __builtin_prefetch(in, 0, 2); }  // to the second level

// What is written over soon, fetched, so that writing need not wait for it. Not on ARM, which fetches nothing of lines
// that are written whole, one after the other, unless it is told to.
inline void fetch_to_write([[maybe_unused]] const void* out) {
#if !defined(__aarch64__)
  __builtin_prefetch(out, 1);
#endif
}

// The same where what is written now lies at `out`. Worth 3% where as much is read, 5 to 20% where rows are copied, and
// 30% where they are stretched.
inline void fetch_target(const void* out) { fetch_to_write(static_cast<const uint8_t*>(out) + 8 * kCacheLine); }

// Whether rows are fetched while others are summed, which reads as much. ARM foresees what is read in order: asked for
// besides, large images that shrink took up to 1.6 times as long, few others a tenth less. And whether rows that are
// copied are read in order, even if they are flipped: ARM took 1.25 times as long for large ones, x86 was not measured.
#if defined(__aarch64__)
constexpr bool kFetchesWhileSumming = false, kMovesInReadingOrder = true;
#else
constexpr bool kFetchesWhileSumming = true, kMovesInReadingOrder = false;
#endif

// All rows in so many steps, some cache lines in each.
class Fetching {
 public:
  POLYPHASE_ROW_LOOP Fetching(const Ahead* rows, int64_t steps) {
    if (rows == nullptr || rows->count == 0 || rows->stride > 2 * rows->row_bytes) return;
    next_ = rows->first;  // and what lies between rows
    end_ = rows->first + (rows->count - 1) * rows->stride + rows->row_bytes;
    const int64_t lines = (end_ - next_) / kCacheLine + 1;
    step_ = (lines + steps - 1) / steps * kCacheLine;
  }

  void step() {
    if (next_ != end_) fetch();
  }

 private:
  POLYPHASE_ROW_LOOP void fetch() {
    const uint8_t* const stop = end_ - next_ < step_ ? end_ : next_ + step_;
    for (const uint8_t* line = next_; line < stop; line += kCacheLine) __builtin_prefetch(line);
    next_ = stop;
  }

  const uint8_t* next_ = nullptr;
  const uint8_t* end_ = nullptr;
  int64_t step_ = 0;  // bytes
};

}  // namespace polyphase
