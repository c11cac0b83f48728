// Ways to pick pixels of a row: a register of them out of a window of the input, by a table of places.
//
// Windows of several widths, and windows of pixels that are whole words of 32 bits. What an instruction set has no way for is
// the next narrower one.
#pragma once

#include <cstring>

#include "polyphase/simd/bytes.h"

namespace polyphase::picking {

#if defined(__AVX512VBMI__)
struct Window {
  static constexpr int kRegister = 64, kBytes = 64;
  using Register = __m512i;
  static Register load(const uint8_t* p) { return _mm512_loadu_si512(p); }
  static void store(uint8_t* out, Register v) { _mm512_storeu_si512(out, v); }
  static void store_first(uint8_t* out, int n, Register v) { Bytes::store_first(out, n, v); }
  static Register pick(const uint8_t* in, Register table) { return _mm512_permutexvar_epi8(table, load(in)); }
};
struct ShortRow : Window {
  explicit ShortRow(int64_t bytes) : row(~uint64_t{0} >> (64 - bytes)) {}
  Register pick(const uint8_t* in, Register table) const {
    return _mm512_permutexvar_epi8(table, _mm512_maskz_loadu_epi8(row, in));
  }
  __mmask64 row;
};
struct WideWindow : Window {
  static constexpr int kBytes = 128;
  static Register pick(const uint8_t* in, Register table) {
    return _mm512_permutex2var_epi8(load(in), table, load(in + 64));
  }
};
struct FarWindow : WideWindow {
  static constexpr int kBytes = 256;
  static Register pick(const uint8_t* in, Register table) {
    const __mmask64 from_far = _mm512_movepi8_mask(table);  // places from 128 on
    return _mm512_mask_blend_epi8(from_far, WideWindow::pick(in, table), WideWindow::pick(in + 128, table));
  }
};
struct Words : WideWindow {
  static Register pick(const uint8_t* in, Register table) {
    return _mm512_permutex2var_epi32(load(in), table, load(in + 64));
  }
};
struct FarWords : Words {
  static constexpr int kBytes = 256;
  static Register pick(const uint8_t* in, Register table) {
    const __mmask16 from_far = _mm512_test_epi32_mask(table, _mm512_set1_epi32(32));
    return _mm512_mask_blend_epi32(from_far, Words::pick(in, table), Words::pick(in + 128, table));
  }
};
#elif defined(__AVX2__)
struct Window {
  static constexpr int kRegister = 16, kBytes = 16;
  using Register = __m128i;
  static Register load(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
  static void store(uint8_t* out, Register v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(out), v); }
  static void store_first(uint8_t* out, int n, Register v) {
    alignas(16) uint8_t buffer[16];
    store(buffer, v);
    std::memcpy(out, buffer, static_cast<size_t>(n));
  }
  static Register pick(const uint8_t* in, Register table) { return _mm_shuffle_epi8(load(in), table); }
};
using ShortRow = Window;
using WideWindow = Window;
using FarWindow = Window;
struct Words {
  static constexpr int kRegister = 32, kBytes = 64;
  using Register = __m256i;
  static Register load(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static void store(uint8_t* out, Register v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), v); }
  static void store_first(uint8_t* out, int n, Register v) { Bytes::store_first(out, n, v); }
  static Register pick(const uint8_t* in, Register table) {
    const __m256 low = _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(load(in), table));
    const __m256 high = _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(load(in + 32), table));
    const __m256 from_high = _mm256_castsi256_ps(_mm256_slli_epi32(table, 28));  // bit 3 to the sign
    return _mm256_castps_si256(_mm256_blendv_ps(low, high, from_high));
  }
};
using FarWords = Words;
#elif defined(POLYPHASE_NEON)
struct Window {
  static constexpr int kRegister = 16, kBytes = 16;
  using Register = Bytes::Register;
  static Register load(const uint8_t* p) { return Bytes::load(p); }
  static void store(uint8_t* out, Register v) { Bytes::store(out, v); }
  static void store_first(uint8_t* out, int n, Register v) { Bytes::store_first(out, n, v); }
  static Register pick(const uint8_t* in, Register table) { return neon::pick(load(in), table); }
};
struct WideWindow : Window {
  static constexpr int kBytes = 32;
  static Register pick(const uint8_t* in, Register table) { return neon::pick(load(in), load(in + 16), table); }
};
using ShortRow = Window;
using FarWindow = WideWindow;
using Words = Window;
using FarWords = Window;
#else
struct Window {
  static constexpr int kRegister = 0, kBytes = 0;
};
using ShortRow = Window;
using WideWindow = Window;
using FarWindow = Window;
using Words = Window;
using FarWords = Window;
#endif

}  // namespace polyphase::picking
