// What is known of caches.
#pragma once

#include <cstdint>

namespace polyphase {

constexpr int64_t kCacheLine = 64;  // bytes
constexpr int64_t kPage = 4096;     // bytes, of the small ones

// Pages in which a processor notices at a time that place after place is read or written, and fetches ahead; 0 where that was
// not measured.
#if defined(__aarch64__)
constexpr int64_t kFollowedPages = 0;
#else
constexpr int64_t kFollowedPages = 32;
#endif

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
