// Rows that will be read soon and lie in no near cache: they are prefetched while something else is computed. Functions are
// given a null pointer where there are none.
#pragma once

#include <cstdint>

#include "polyphase/core/abi.h"
#include "polyphase/core/cache.h"

namespace polyphase {

// An image of so many bytes, used a moment ago, is taken to be still in the second-level cache.
constexpr int64_t kNear = 256 << 10;

// Bytes that may be fetched into the first-level cache beside what is used there.
constexpr int64_t kFetched = 12 << 10;

struct Ahead {
  const uint8_t* first;
  int64_t row_bytes;
  int64_t stride;  // bytes
  int64_t count;

  int64_t bytes() const { return count * row_bytes; }
};

// Prefetches a cache line of a far image that will be read some hundred lines later.
inline void fetch_later(const void* in) { __builtin_prefetch(in, 0, 2); }  // to the second level

// Prefetches what will be overwritten half a kilobyte ahead of `out`, where something is written now. It helps most where little is read for what is
// written: rows that are copied, and even more those that are stretched.
inline void fetch_target(const void* out) { fetch_to_write(static_cast<const uint8_t*>(out) + 8 * kCacheLine); }

// kFetchesWhileSumming: whether the next rows are prefetched while others are summed, which reads as much itself. ARM's
// hardware foresees what is read in order; large images that shrink became slower when asked for besides.
// kMovesInReadingOrder: whether rows that are copied are taken in the order they lie in memory, even for a flip. ARM is
// faster so with large images; x86 was not measured.
#if defined(__aarch64__)
constexpr bool kFetchesWhileSumming = false, kMovesInReadingOrder = true;
#else
constexpr bool kFetchesWhileSumming = true, kMovesInReadingOrder = false;
#endif

// Prefetches rows in so many steps, a few cache lines in each, and what lies between rows too. Where that is more than the
// rows themselves, nothing is fetched.
class Fetching {
 public:
  POLYPHASE_ROW_LOOP Fetching(const Ahead* rows, int64_t steps) {
    if (rows == nullptr || rows->count == 0 || rows->stride > 2 * rows->row_bytes) return;
    next_ = rows->first;  // and what lies between rows
    end_ = rows->first + (rows->count - 1) * rows->stride + rows->row_bytes;
    const int64_t lines = (end_ - next_) / kCacheLine + 1;
    step_ = (lines + steps - 1) / steps * kCacheLine;
    far_ = rows->bytes() > kFetched;
  }

  void step() {
    if (next_ != end_) fetch();
  }

 private:
  POLYPHASE_ROW_LOOP void fetch() {
    const uint8_t* const stop = end_ - next_ < step_ ? end_ : next_ + step_;
    if (far_) {
      for (const uint8_t* line = next_; line < stop; line += kCacheLine) fetch_later(line);
    } else {
      for (const uint8_t* line = next_; line < stop; line += kCacheLine) __builtin_prefetch(line);
    }
    next_ = stop;
  }

  const uint8_t* next_ = nullptr;
  const uint8_t* end_ = nullptr;
  int64_t step_ = 0;  // bytes
  bool far_ = false;  // to the second level
};

}  // namespace polyphase
