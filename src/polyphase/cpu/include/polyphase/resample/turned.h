// Rows of pixels in the opposite order, of pixels whose size divides 16 bytes.
#pragma once

#include <cstring>

#include "polyphase/core/abi.h"
#include "polyphase/resample/ahead.h"
#include "polyphase/resample/moved_rows.h"
#include "polyphase/simd/bytes.h"

namespace polyphase {

// Where a row's pixels lie, in bytes.
struct Turned {
  int64_t in;  // where the last pixel begins
  int64_t out;
  int64_t length;  // at least kLeastTurned
  int64_t pixel;   // `turns` says whether there is a way for it
};

#if defined(POLYPHASE_BYTE_SHUFFLES)

// copy_turned_block writes kTurnedBlock bytes: those that lie before `end`, their pixels in the opposite order. The places
// say, for each of kSpan bytes, where it comes from.
#if defined(__AVX512VBMI__)
constexpr int kTurnedBlock = 64, kSpan = 64;
using TurnedPlaces = __m512i;
POLYPHASE_BLOCK TurnedPlaces load_places(const uint8_t* places) { return _mm512_loadu_si512(places); }
POLYPHASE_BLOCK void copy_turned_block(const uint8_t* end, TurnedPlaces places, uint8_t* out) {
  _mm512_storeu_si512(out, _mm512_permutexvar_epi8(places, _mm512_loadu_si512(end - 64)));
}
#elif defined(POLYPHASE_NEON)
constexpr int kTurnedBlock = 32, kSpan = 16;
using TurnedPlaces = Bytes::Register;
POLYPHASE_BLOCK TurnedPlaces load_places(const uint8_t* places) { return Bytes::load(places); }
POLYPHASE_BLOCK void copy_turned_block(const uint8_t* end, TurnedPlaces places, uint8_t* out) {
  Bytes::store(out, neon::pick(Bytes::load(end - 16), places));
  Bytes::store(out + 16, neon::pick(Bytes::load(end - 32), places));
}
#else
constexpr int kTurnedBlock = 32, kSpan = 16;
using TurnedPlaces = __m256i;
POLYPHASE_BLOCK TurnedPlaces load_places(const uint8_t* places) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(places)));
}
POLYPHASE_BLOCK void copy_turned_block(const uint8_t* end, TurnedPlaces places, uint8_t* out) {
  const __m256i values = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(end - 32));
  const __m256i turned = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(values, places), 0x4e);  // halves exchanged
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), turned);
}
#endif

struct TurnedBytes {
  uint8_t places[kSpan] = {};
  constexpr TurnedBytes(int pixel) {
    for (int b = 0; b < kSpan; ++b) places[b] = static_cast<uint8_t>(kSpan - pixel * (b / pixel + 1) + b % pixel);
  }
};
constexpr TurnedBytes kTurnedBytes[] = {1, 2, 4, 8, 16};  // by the logarithm of a pixel's bytes

constexpr bool turns(int64_t pixel) { return 16 % pixel == 0; }
constexpr int64_t kLeastTurned = kTurnedBlock;

// kFar: whether rows are prefetched. What lies near already would only be slower.
template <bool kFar>
inline void copy_turned_from(const Turned t, const MovedRows rows) {
  constexpr int64_t kStep = kTurnedBlock;
  const TurnedPlaces places = load_places(kTurnedBytes[__builtin_ctzll(static_cast<uint64_t>(t.pixel))].places);
  for (int64_t r = 0; r < rows.count; ++r) {
    const uint8_t* const end = rows.source(r) + t.in + t.pixel;
    const uint8_t* const next_end = rows.source(rows.after(r)) + t.in + t.pixel;
    uint8_t* const out = rows.target(r) + t.out;
    int64_t at = 0;
    for (; at < t.length - 2 * kStep; at += 2 * kStep) {
#pragma GCC unroll 2
      for (int64_t line = at; kFar && line < at + 2 * kStep; line += kCacheLine) {
        fetch_later(next_end - line - kCacheLine);
        fetch_target(out + line);
      }
      copy_turned_block(end - at, places, out + at);
      copy_turned_block(end - at - kStep, places, out + at + kStep);
    }
    if (at < t.length - kStep) copy_turned_block(end - at, places, out + at);
    copy_turned_block(end - t.length + kStep, places, out + t.length - kStep);  // overlaps the block before
  }
}

// Whether every row of the output is whole cache lines. ARM need not read what it writes then.
inline bool are_whole_lines(const Turned& t, const MovedRows& rows) {
  const auto first = static_cast<int64_t>(reinterpret_cast<uintptr_t>(rows.target(0) + t.out));
  const int64_t stride = rows.count == 1 ? 0 : rows.out_stride;
  return first % kCacheLine == 0 && t.length % kCacheLine == 0 && stride % kCacheLine == 0;
}

// Reads the input in ascending order, which ARM's hardware foresees, and writes the output's cache lines in descending order,
// each whole. Large images are faster so; but slower where rows are not whole lines.
inline void copy_turned_in_reading_order(const Turned t, const MovedRows rows) {
  const TurnedPlaces places = load_places(kTurnedBytes[__builtin_ctzll(static_cast<uint64_t>(t.pixel))].places);
  for (int64_t r = 0; r < rows.count; ++r) {
    const uint8_t* const in = rows.source(r) + t.in + t.pixel - t.length;
    uint8_t* const out = rows.target(r) + t.out;
    for (int64_t at = 0; at < t.length; at += kCacheLine) {
      uint8_t* const line = out + t.length - at - kCacheLine;
#pragma GCC unroll 2
      for (int64_t b = 0; b < kCacheLine; b += kTurnedBlock) {
        copy_turned_block(in + at + kCacheLine - b, places, line + b);
      }
    }
  }
}

inline void copy_turned(const Turned& t, const MovedRows& rows) {
  if (kMovesInReadingOrder && are_whole_lines(t, rows)) return copy_turned_in_reading_order(t, rows);
  rows.count * t.length > kNear ? copy_turned_from<true>(t, rows) : copy_turned_from<false>(t, rows);
}

#else
constexpr bool turns(int64_t pixel) { return pixel == 1; }
constexpr int64_t kLeastTurned = 8;

inline void copy_turned(const Turned t, const MovedRows rows) {
  for (int64_t r = 0; r < rows.count; ++r) {
    const uint8_t* const last = rows.source(r) + t.in;
    uint8_t* const out = rows.target(r) + t.out;
    int64_t at = 0;
    for (; at + 8 <= t.length; at += 8) {
      uint64_t eight;
      std::memcpy(&eight, last - at - 7, 8);
      eight = __builtin_bswap64(eight);
      std::memcpy(out + at, &eight, 8);
    }
    for (; at < t.length; ++at) out[at] = last[-at];
  }
}
#endif

}  // namespace polyphase
