// A vector register of bytes, for each instruction set: the only file of the uint8 kernels that knows one.
//
// Products are made of pairs: `dot` adds value0 * weight0 + value1 * weight1 to each 32 bit lane, whose 16 bit lanes are
// `place(lane, 0)` and `place(lane, 1)`. That is exact: |value * weight| < 2^23, and a row of taps adds up to less than
// 2^24 * 2^7. Or of four bytes each (ByteProducts), where sums of parts may wrap, but what they add up to does not.
#pragma once

#include <cstdint>
#include <cstring>

#include "polyphase/core/abi.h"

#if defined(POLYPHASE_PLAIN)  // for tests: what is left for other processors
#elif defined(__AVX2__)
#include "polyphase/simd/intrinsics.h"
#define POLYPHASE_BYTE_VECTORS 1
#define POLYPHASE_BYTE_SHUFFLES 1
#if defined(__AVX512VBMI__) && defined(__AVX512VNNI__)
#define POLYPHASE_BYTE_PRODUCTS 1
#else
#define POLYPHASE_FOUR_ROWS 1
#endif
#elif defined(__SSE2__)
#include <emmintrin.h>
#define POLYPHASE_BYTE_VECTORS 1
#elif defined(__aarch64__)
#include "polyphase/simd/neon.h"
#if defined(POLYPHASE_NEON)
#define POLYPHASE_BYTE_VECTORS 1
#define POLYPHASE_BYTE_SHUFFLES 1
#endif
#endif

namespace polyphase {

// How sums are made of products of two values, widened to 16 bits, for a vector that has `dot` and `place`.
template <class Vector>
struct WordProducts {
  using Register = typename Vector::Register;
  using Sums = Register;
  using Weights = Register;
  static constexpr int kTaps = 2;         // of a product
  static constexpr int kWeightBytes = Vector::kSize;

  // Where the byte of a lane's tap belongs.
  static constexpr int64_t byte_place(int64_t lane, int64_t tap) { return 2 * Vector::place(lane, tap); }
  static void put_weight(uint8_t* weights, int64_t lane, int64_t tap, int16_t weight) {
    std::memcpy(weights + 2 * Vector::place(lane, tap), &weight, sizeof(weight));
  }
  static Weights load_weights(const uint8_t* weights) { return Vector::load(weights); }
  static Register pick(Register window, Register table) { return Vector::shuffle_pairs(window, table); }
  static Register pick(const uint8_t* in, int windows, Register table, const uint64_t* from) {
    return Vector::shuffle_pairs(in, windows, table, from);
  }
  static Sums started(Register half) { return half; }
  static void add(Sums& sums, Register values, Weights weights) { sums = Vector::dot(sums, values, weights); }
  static Register total(Sums sums) { return sums; }
};

#if defined(__AVX2__)

// A shuffle of 16 bytes: of eight that belong in even places and then eight that belong in odd ones.
constexpr uint8_t kEvenThenOdd[16] = {0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15};

#endif

#if defined(__AVX512BW__) && !defined(POLYPHASE_PLAIN)

// What AVX-512 does with 64 bytes and without VBMI: bytes change places within 16 bytes only.
struct LongBytes {
  static constexpr int kSize = 64;
  using Register = __m512i;

  static Register load(const void* p) { return _mm512_loadu_si512(p); }
  static Register load_first(const void* p, int n) { return _mm512_maskz_loadu_epi8(first(n), p); }
  static void store(void* p, Register v) { _mm512_storeu_si512(p, v); }
  static void store_first(void* p, int n, Register v) { _mm512_mask_storeu_epi8(p, first(n), v); }
  static Register broadcast(int32_t x) { return _mm512_set1_epi32(x); }
  static Register dot(Register sum, Register values, Register weights) {
#if defined(__AVX512VNNI__)
    return _mm512_dpwssd_epi32(sum, values, weights);
#else
    return _mm512_add_epi32(sum, _mm512_madd_epi16(values, weights));
#endif
  }
  static Register words_low(Register a, Register b) { return _mm512_unpacklo_epi16(a, b); }
  static Register words_high(Register a, Register b) { return _mm512_unpackhi_epi16(a, b); }
  static Register even_bytes(Register v) { return _mm512_and_si512(v, broadcast(0x00ff00ff)); }
  static Register odd_bytes(Register v) { return _mm512_srli_epi16(v, 8); }
  // Each lane by its own number of bits: a shift of all by one number needs the port that permutations need.
  static Register shift_right(Register v, Register bits) { return _mm512_srav_epi32(v, bits); }
  // Saturates to 0..255: in each 16 bytes, four of each register.
  static Register pack(Register a, Register b, Register c, Register d) {
    return _mm512_packus_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
  }
  // As pack, for sums of the even and odd bytes of words_low, then of words_high: in the order the bytes had.
  static Register pack_bytes(Register even_low, Register odd_low, Register even_high, Register odd_high) {
    return shuffle(pack(even_low, even_high, odd_low, odd_high), in_each(kEvenThenOdd));
  }
  // The same 16 bytes four times, and a shuffle of each 16 bytes by such a table: an entry of kNone gives 0.
  static constexpr uint8_t kNone = 0x80;
  static Register in_each(const void* table) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(static_cast<const __m128i*>(table)));
  }
  static Register shuffle(Register v, Register table) { return _mm512_shuffle_epi8(v, table); }
  // 16 bytes of each of four rows.
  static constexpr int kRows = 4;
  static Register load_rows(const uint8_t* a, const uint8_t* b, const uint8_t* c, const uint8_t* d) {
    const __m512i two = _mm512_inserti32x4(_mm512_castsi128_si512(row(a)), row(b), 1);
    return _mm512_inserti32x4(_mm512_inserti32x4(two, row(c), 2), row(d), 3);
  }
  static void store_rows(uint8_t* const* rows, int64_t at, Register v) {
    const __m256i low = _mm512_castsi512_si256(v), high = _mm512_extracti64x4_epi64(v, 1);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(rows[0] + at), _mm256_castsi256_si128(low));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(rows[1] + at), _mm256_extracti128_si256(low, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(rows[2] + at), _mm256_castsi256_si128(high));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(rows[3] + at), _mm256_extracti128_si256(high, 1));
  }

 private:
  static __mmask64 first(int n) { return n >= 64 ? ~0ull : (1ull << n) - 1; }
  static __m128i row(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
};

#endif

#if defined(__AVX2__) && !defined(POLYPHASE_PLAIN)

// What AVX2 does with 32 bytes.
struct Avx2Bytes {
  static constexpr int kSize = 32;
  static constexpr int kSums = 8;
  static constexpr int kGroups = 2;  // pshufb stays within 16 bytes
  static constexpr int kWindow = 16;
  static constexpr int kMostWindows = 1;
  static constexpr int kRowsAtOnce = 2;  // by the same tables
  using Register = __m256i;

  static Register load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  static Register load_first(const void* p, int n) {
    if (n >= kSize) return load(p);
    alignas(32) uint8_t buffer[kSize] = {};
    std::memcpy(buffer, p, n);
    return load(buffer);
  }
  static void store(void* p, Register v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }
  static void store_first(void* p, int n, Register v) {
    if (n >= kSize) return store(p, v);
    alignas(32) uint8_t buffer[kSize];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(buffer), v);
    std::memcpy(p, buffer, n);
  }
  static Register broadcast(int32_t x) { return _mm256_set1_epi32(x); }
  static Register broadcast_two(int64_t x) { return _mm256_set1_epi64x(x); }  // of 32 bits each
  static Register add(Register a, Register b) { return _mm256_add_epi32(a, b); }
  // In each 16 bytes, the sums of two neighbouring lanes of a, and of two of b.
  static Register add_neighbours(Register a, Register b) { return _mm256_hadd_epi32(a, b); }
  // v, with the last four of each 16 bytes taken from `last`.
  static Register with_last(Register v, Register last) { return _mm256_blend_epi32(v, last, 0x88); }

  static Register halves(const uint8_t* low, const uint8_t* high) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(low))),
                                   _mm_loadu_si128(reinterpret_cast<const __m128i*>(high)), 1);
  }
  static Register in_each(const uint8_t* table) { return halves(table, table); }
  // 16 bytes of each of two rows, of as many as are given.
  static constexpr int kRows = 2;
  static Register load_rows(const uint8_t* a, const uint8_t* b, const uint8_t*, const uint8_t*) { return halves(a, b); }
  static void store_rows(uint8_t* const* rows, int64_t at, Register v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(rows[0] + at), _mm256_castsi256_si128(v));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(rows[1] + at), _mm256_extracti128_si256(v, 1));
  }
  static Register windows(const uint8_t* in, const int32_t* bases) { return halves(in + bases[0], in + bases[1]); }
  static constexpr uint8_t kNone = 0x80;
  static Register shuffle(Register window, Register table) { return _mm256_shuffle_epi8(window, table); }
  static Register shuffle_pairs(Register window, Register table) { return _mm256_shuffle_epi8(window, table); }
  // Named where there may be several windows, never called: here there is one.
  static Register shuffle_pairs(const uint8_t*, int, Register table, const uint64_t*) { return table; }
  static constexpr int64_t place(int64_t lane, int64_t tap) { return 2 * lane + tap; }
  static Register dot(Register sum, Register values, Register weights) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(values, weights));
  }
  static Register words_low(Register a, Register b) { return _mm256_unpacklo_epi16(a, b); }
  static Register words_high(Register a, Register b) { return _mm256_unpackhi_epi16(a, b); }
  static Register even_bytes(Register v) { return _mm256_and_si256(v, broadcast(0x00ff00ff)); }
  static Register odd_bytes(Register v) { return _mm256_srli_epi16(v, 8); }
  static Register shift_right(Register v, Register bits) { return _mm256_srav_epi32(v, bits); }
  static Register pack(Register a, Register b, Register c, Register d) {
    return _mm256_packus_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
  }
  static Register pack_bytes(Register even_low, Register odd_low, Register even_high, Register odd_high) {
    return shuffle(pack(even_low, even_high, odd_low, odd_high), in_each(kEvenThenOdd));
  }
  static constexpr int kLeastLanes = kSums;
  static void fill_order(int64_t, uint8_t* order) { store(order, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)); }
  static Register pack_in_order(const Register* sums, Register order) {
    return _mm256_permutevar8x32_epi32(pack(sums[0], sums[1], sums[2], sums[3]), order);
  }
};

#endif

#if defined(POLYPHASE_PLAIN)

#elif defined(POLYPHASE_BYTE_PRODUCTS)

struct Bytes : LongBytes {
  static constexpr int kSums = 16;    // 32 bit lanes
  static constexpr int kGroups = 1;   // windows per vector
  static constexpr int kWindow = 64;  // bytes of a window
  static constexpr int kMostWindows = 4;  // one after the other
  static constexpr int kRowsAtOnce = 2;

  static Register windows(const uint8_t* in, const int32_t* bases) { return load(in + bases[0]); }
  // Of all 64 bytes, by a table that is kNone in every odd byte and nowhere else.
  static Register shuffle_pairs(Register window, Register table) {
    return _mm512_maskz_permutexvar_epi8(0x5555555555555555ull, table, window);
  }
  // As shuffle_pairs, out of windows one after the other; `from` has a mask for each, of the bytes that lie in it.
  POLYPHASE_BLOCK static Register shuffle_pairs(const uint8_t* in, int windows, Register table, const uint64_t* from) {
    Register pairs = _mm512_maskz_permutexvar_epi8(from[0], table, load(in));
#pragma GCC unroll 2
    for (int w = 1; w < windows; ++w) pairs = _mm512_mask_permutexvar_epi8(pairs, from[w], table, load(in + w * kWindow));
    return pairs;
  }
  static constexpr int64_t place(int64_t lane, int64_t tap) { return 2 * lane + tap; }
  // Packs the first lanes of four registers of sums one after the other.
  static constexpr int kLeastLanes = 12;  // fewer, and another window is better
  static void fill_order(int64_t lanes, uint8_t* order) {
    for (int64_t i = 0; i < 4 * lanes; ++i) {
      const int64_t lane = i % lanes;
      order[i] = static_cast<uint8_t>(16 * (lane / 4) + 4 * (i / lanes) + lane % 4);
    }
  }
  static Register pack_in_order(const Register* sums, Register order) {
    return _mm512_permutexvar_epi8(order, pack(sums[0], sums[1], sums[2], sums[3]));
  }
};

// A 16 bit weight as low - 256 * high. Its precision puts the largest below 2^15, and none is as far below 0: what is split
// lies above -2^15 + 2^7.
struct SplitWeight {
  explicit SplitWeight(int16_t weight)
      : high(static_cast<int8_t>((static_cast<int8_t>(weight) - weight) / 256)), low(static_cast<int8_t>(weight)) {}
  int8_t high, low;
};

// How sums are made of products of four bytes, which need not be widened.
struct ByteProducts {
  using Register = Bytes::Register;
  struct Sums {
    Register high, low;
  };
  using Weights = Sums;
  static constexpr int kTaps = 4;
  static constexpr int kWeightBytes = 2 * Bytes::kSize;

  static constexpr int64_t byte_place(int64_t lane, int64_t tap) { return 4 * lane + tap; }
  static void put_weight(uint8_t* weights, int64_t lane, int64_t tap, int16_t weight) {
    const SplitWeight split(weight);
    weights[4 * lane + tap] = static_cast<uint8_t>(split.high);
    weights[Bytes::kSize + 4 * lane + tap] = static_cast<uint8_t>(split.low);
  }
  static Weights load_weights(const uint8_t* weights) { return {Bytes::load(weights), Bytes::load(weights + Bytes::kSize)}; }
  static Register pick(Register window, Register table) { return _mm512_permutexvar_epi8(table, window); }
  POLYPHASE_BLOCK static Register pick(const uint8_t* in, int windows, Register table, const uint64_t* from) {
    Register picked = _mm512_permutexvar_epi8(table, Bytes::load(in));
#pragma GCC unroll 2
    for (int w = 1; w < windows; ++w) {
      picked = _mm512_mask_permutexvar_epi8(picked, from[w], table, Bytes::load(in + w * Bytes::kWindow));
    }
    return picked;
  }
  static Sums started(Register half) { return {Bytes::broadcast(0), half}; }
  static void add(Sums& sums, Register values, const Weights& weights) {
    sums.high = _mm512_dpbusd_epi32(sums.high, values, weights.high);
    sums.low = _mm512_dpbusd_epi32(sums.low, values, weights.low);
  }
  static Register total(const Sums& sums) { return _mm512_sub_epi32(sums.low, _mm512_slli_epi32(sums.high, 8)); }
};

#elif defined(__AVX2__)

using Bytes = Avx2Bytes;

#elif defined(__SSE2__)

// What every x86-64 has: no shuffles of bytes.
struct Bytes {
  static constexpr int kSize = 16;
  static constexpr int kMostWindows = 1;
  using Register = __m128i;

  static Register load(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  static Register load_first(const void* p, int n) {
    if (n >= kSize) return load(p);
    alignas(16) uint8_t buffer[kSize] = {};
    std::memcpy(buffer, p, n);
    return load(buffer);
  }
  static void store(void* p, Register v) { _mm_storeu_si128(static_cast<__m128i*>(p), v); }
  static void store_first(void* p, int n, Register v) {
    if (n >= kSize) return store(p, v);
    alignas(16) uint8_t buffer[kSize];
    store(buffer, v);
    std::memcpy(p, buffer, n);
  }
  static Register broadcast(int32_t x) { return _mm_set1_epi32(x); }
  static Register dot(Register sum, Register values, Register weights) {
    return _mm_add_epi32(sum, _mm_madd_epi16(values, weights));
  }
  static Register interleave_low(Register a, Register b) { return _mm_unpacklo_epi8(a, b); }
  static Register words_low(Register a, Register b) { return _mm_unpacklo_epi16(a, b); }
  static Register words_high(Register a, Register b) { return _mm_unpackhi_epi16(a, b); }
  static Register even_bytes(Register v) { return _mm_and_si128(v, broadcast(0x00ff00ff)); }
  static Register odd_bytes(Register v) { return _mm_srli_epi16(v, 8); }
  static Register shift_right(Register v, Register bits) { return _mm_sra_epi32(v, _mm_srli_epi64(bits, 32)); }
  static Register pack(Register a, Register b, Register c, Register d) {
    return _mm_packus_epi16(_mm_packs_epi32(a, b), _mm_packs_epi32(c, d));
  }
  static Register pack_bytes(Register even_low, Register odd_low, Register even_high, Register odd_high) {
    const Register packed = pack(even_low, even_high, odd_low, odd_high);
    return _mm_unpacklo_epi8(packed, _mm_srli_si128(packed, 8));
  }
};

#elif defined(POLYPHASE_NEON)

struct Bytes {
  static constexpr int kSize = 16;
  static constexpr int kSums = 4;
  static constexpr int kGroups = 1;
  static constexpr int kWindow = 16;
  static constexpr int kMostWindows = 1;
  static constexpr int kRowsAtOnce = 1;
  using Register = neon::Bytes16;

  static Register load(const void* p) { return neon::load<Register>(p); }
  static Register load_first(const void* p, int n) {
    if (n >= kSize) return load(p);
    Register v = {};
    std::memcpy(&v, p, n);
    return v;
  }
  static void store(void* p, Register v) { neon::store(p, v); }
  static void store_first(void* p, int n, Register v) {
    if (n >= kSize) return store(p, v);
    std::memcpy(p, &v, n);
  }
  static Register broadcast(int32_t x) { return of(neon::Ints{x, x, x, x}); }

  static Register windows(const uint8_t* in, const int32_t* bases) { return load(in + bases[0]); }
  static constexpr uint8_t kNone = 0x80;
  static Register shuffle_pairs(Register window, Register table) { return neon::pick(window, table); }
  // Named where there may be several windows, never called: here there is one.
  static Register shuffle_pairs(const uint8_t*, int, Register table, const uint64_t*) { return table; }
  static constexpr int64_t place(int64_t lane, int64_t tap) { return lane + 4 * tap; }
  static Register dot(Register sum, Register values, Register weights) {
    const neon::Ints first = neon::add_products_low(sums(sum), shorts(values), shorts(weights));
    return of(neon::add_products_high(first, shorts(values), shorts(weights)));
  }
  static Register shift_right(Register v, Register bits) { return of(sums(v) >> sums(bits)); }
  static Register pack(Register a, Register b, Register c, Register d) {
    return neon::narrowed(sums(a), sums(b), sums(c), sums(d));
  }
  static Register pack_bytes(Register a, Register b, Register c, Register d) { return pack(a, b, c, d); }
  static constexpr int kLeastLanes = kSums;
  static void fill_order(int64_t, uint8_t*) {}
  static Register pack_in_order(const Register* r, Register) { return pack(r[0], r[1], r[2], r[3]); }

  static Register of(neon::Ints v) { return reinterpret_cast<Register>(v); }
  static neon::Ints sums(Register v) { return reinterpret_cast<neon::Ints>(v); }
  static neon::Shorts shorts(Register v) { return reinterpret_cast<neon::Shorts>(v); }
};

#endif

// What needs no shuffles from afar is done in the longest registers there are.
#if defined(__AVX512BW__) && !defined(POLYPHASE_PLAIN)
using LongestBytes = LongBytes;
#elif defined(POLYPHASE_BYTE_VECTORS)
using LongestBytes = Bytes;
#endif

}  // namespace polyphase
