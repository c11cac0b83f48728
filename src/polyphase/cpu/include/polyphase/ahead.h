// Rows that will be read soon, and come from far away: fetched while something else is computed. Where there are none, a
// function is given a null pointer.
#pragma once

#include <cstdint>

namespace polyphase {

constexpr int64_t kCacheLine = 64;  // bytes

template <class T>
struct Ahead {
  const T* first;
  int64_t length;  // of a row, in elements
  int64_t stride;
  int64_t count;

  int64_t bytes() const { return count * length * static_cast<int64_t>(sizeof(T)); }
};

// All rows in so many steps, some cache lines in each.
template <class T>
class Fetching {
 public:
  Fetching(const Ahead<T>* rows, int64_t steps) {
    if (rows == nullptr || rows->count == 0 || rows->stride > 2 * rows->length) return;
    next_ = reinterpret_cast<const char*>(rows->first);  // and what lies between rows
    end_ = reinterpret_cast<const char*>(rows->first + (rows->count - 1) * rows->stride + rows->length);
    const int64_t lines = (end_ - next_) / kCacheLine + 1;
    step_ = (lines + steps - 1) / steps * kCacheLine;
  }

  void step() {
    const char* const stop = end_ - next_ < step_ ? end_ : next_ + step_;
    for (; next_ < stop; next_ += kCacheLine) __builtin_prefetch(next_);
  }

 private:
  const char* next_ = nullptr;
  const char* end_ = nullptr;
  int64_t step_ = 0;  // bytes
};

}  // namespace polyphase
