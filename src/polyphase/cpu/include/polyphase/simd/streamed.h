// Stores past the caches: what they overwrite is not read first, and of what is in the caches nothing has to go. For results so
// large that they would not stay there.
#pragma once

#include "polyphase/core/cache.h"
#if defined(__AVX2__)
#include "polyphase/simd/intrinsics.h"
#endif

namespace polyphase {

// Smaller results are left for whoever reads them next.
constexpr int64_t kStreamedBytes = 8 << 20;

#if defined(__AVX2__)

constexpr bool kCanStream = true;

// A line. Both are aligned to it.
inline void stream_line(const void* from, void* to) {
#if defined(__AVX512F__)
  _mm512_stream_si512(static_cast<__m512i*>(to), _mm512_load_si512(from));
#else
  const __m256i* const halves = static_cast<const __m256i*>(from);
  __m256i* const out = static_cast<__m256i*>(to);
  _mm256_stream_si256(out, _mm256_load_si256(halves));
  _mm256_stream_si256(out + 1, _mm256_load_si256(halves + 1));
#endif
}

// Before anybody is told that all is there.
inline void finish_streaming() { _mm_sfence(); }

#else

constexpr bool kCanStream = false;
inline void stream_line(const void*, void*) {}
inline void finish_streaming() {}

#endif

}  // namespace polyphase
