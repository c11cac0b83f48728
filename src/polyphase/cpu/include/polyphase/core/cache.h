// What is known of caches.
#pragma once

#include <cstdint>

namespace polyphase {

constexpr int64_t kCacheLine = 64;  // bytes

// Whether what will soon be overwritten is prefetched, so that stores do not wait for it. Not on ARM: it reads nothing of lines
// that are written whole, one after the other, unless a prefetch asks for them.
#if defined(__aarch64__)
constexpr bool kFetchesToWrite = false;
#else
constexpr bool kFetchesToWrite = true;
#endif

inline void fetch_to_write(const void* out) {
  if (kFetchesToWrite) __builtin_prefetch(out, 1);
}

}  // namespace polyphase
