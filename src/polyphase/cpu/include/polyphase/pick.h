// Index-only maps of a row: pixels are moved, bytes untouched, whatever their dtype. A pixel here is all the bytes that
// move together: channels times the size of an element.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "polyphase/abi.h"
#include "polyphase/bytes.h"

namespace polyphase {

template <int kPixel>
inline void copy_each(const uint8_t* in, const int32_t* pixels, int64_t count, int64_t, uint8_t* out) {
  for (int64_t x = 0; x < count; ++x) {
    std::memcpy(out + x * kPixel, in + static_cast<int64_t>(pixels[x]) * kPixel, kPixel);
  }
}

template <>
inline void copy_each<0>(const uint8_t* in, const int32_t* pixels, int64_t count, int64_t pixel, uint8_t* out) {
  for (int64_t x = 0; x < count; ++x) std::memcpy(out + x * pixel, in + pixels[x] * pixel, pixel);
}

using CopyEach = void (*)(const uint8_t*, const int32_t*, int64_t, int64_t, uint8_t*);

inline CopyEach copy_each_of(int64_t pixel) {
  switch (pixel) {
    case 1: return copy_each<1>;
    case 2: return copy_each<2>;
    case 3: return copy_each<3>;
    case 4: return copy_each<4>;
    case 6: return copy_each<6>;
    case 8: return copy_each<8>;
    case 12: return copy_each<12>;
    case 16: return copy_each<16>;
    default: return copy_each<0>;
  }
}

class PickLanes {
 public:
  PickLanes(const Taps& taps, int64_t pixel_bytes)
      : pixel_(pixel_bytes), in_bytes_(taps.in_size * pixel_bytes), copy_(copy_each_of(pixel_bytes)) {
    pixels_.resize(taps.out_size);
    for (int64_t x = 0; x < taps.out_size; ++x) {
      pixels_[x] = taps.begin[x] == taps.begin[x + 1] ? -1 : taps.index[taps.begin[x]];
    }
    for (int64_t x = 0; x < taps.out_size;) x = add_run(x);
  }

  int64_t readable_length() const { return 0; }
  size_t bytes() const {
    return sizeof(*this) + runs_.capacity() * sizeof(Run) + pixels_.capacity() * 4 + tables_.capacity();
  }

  // Outputs that are a constant border are left alone.
  void run(const uint8_t* in, uint8_t* out) const {
    for (const Run& r : runs_) {
      switch (r.kind) {
        case kCopy: std::memcpy(out + r.out, in + r.in, r.bytes); break;
        case kEach: copy_(in, pixels_.data() + r.in, r.bytes, pixel_, out + r.out); break;
#if defined(POLYPHASE_BYTE_VECTORS)
        case kWindow: pick_window(in + r.in, tables_.data() + r.table, r.bytes, out + r.out); break;
        case kWideWindow: pick_wide_window(in + r.in, tables_.data() + r.table, r.bytes, out + r.out); break;
#endif
        default: break;
      }
    }
  }

 private:
  enum Kind : int32_t { kCopy, kEach, kWindow, kWideWindow };
  struct Run {
    Kind kind;
    int32_t bytes;  // of output; kEach: pixels
    int64_t in;     // byte; kEach: place in pixels_
    int64_t out;    // byte
    uint32_t table;
  };

#if defined(__AVX512VBMI__)
  static constexpr int kRegister = 64, kWindowBytes = 64, kWideWindowBytes = 128;
  static void pick_window(const uint8_t* in, const uint8_t* table, int n, uint8_t* out) {
    const __m512i picked = _mm512_permutexvar_epi8(_mm512_loadu_si512(table), _mm512_loadu_si512(in));
    Bytes::store_first(out, n, picked);
  }
  static void pick_wide_window(const uint8_t* in, const uint8_t* table, int n, uint8_t* out) {
    const __m512i low = _mm512_loadu_si512(in), high = _mm512_loadu_si512(in + 64);
    Bytes::store_first(out, n, _mm512_permutex2var_epi8(low, _mm512_loadu_si512(table), high));
  }
#elif defined(__AVX2__)
  static constexpr int kRegister = 16, kWindowBytes = 16, kWideWindowBytes = 16;
  static void pick_window(const uint8_t* in, const uint8_t* table, int n, uint8_t* out) {
    const __m128i window = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in));
    const __m128i picked = _mm_shuffle_epi8(window, _mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
    if (n == 16) return _mm_storeu_si128(reinterpret_cast<__m128i*>(out), picked);
    alignas(16) uint8_t buffer[16];
    _mm_store_si128(reinterpret_cast<__m128i*>(buffer), picked);
    std::memcpy(out, buffer, n);
  }
  static void pick_wide_window(const uint8_t*, const uint8_t*, int, uint8_t*) {}
#else
  static constexpr int kRegister = 0, kWindowBytes = 0, kWideWindowBytes = 0;
#endif
  static constexpr int64_t kLongCopy = 64;  // bytes; shorter runs of neighbours go with what is around them

  // The run that begins at pixel x; returns where the next begins.
  int64_t add_run(int64_t x) {
    const int64_t end = static_cast<int64_t>(pixels_.size());
    if (pixels_[x] < 0) return x + 1;
    const int64_t copied = neighbours(x);
    if (copied * pixel_ >= kLongCopy || copied == end - x) {
      runs_.push_back({kCopy, static_cast<int32_t>(copied * pixel_), pixels_[x] * pixel_, x * pixel_, 0});
      return x + copied;
    }
    int64_t stop = x;
    while (stop < end && pixels_[stop] >= 0 && (stop == x || neighbours(stop) * pixel_ < kLongCopy)) ++stop;
    while (x < stop) x = add_block(x, stop);
    return stop;
  }

  int64_t neighbours(int64_t x) const {
    int64_t n = 1;
    const int64_t enough = std::min<int64_t>(pixels_.size() - x, INT32_MAX / pixel_);
    while (n < enough && pixels_[x + n] == pixels_[x] + n) ++n;
    return n;
  }

  // As many pixels from x on as one register takes, or all the rest one by one.
  int64_t add_block(int64_t x, int64_t stop) {
    const int64_t count = std::min<int64_t>(pixel_ == 0 ? 0 : kRegister / pixel_, stop - x);
    if (count >= 2 && in_bytes_ >= kWindowBytes) {
      const auto [low, high] = std::minmax_element(pixels_.begin() + x, pixels_.begin() + x + count);
      const int64_t span = (*high - *low + 1) * pixel_;
      if (span <= kWindowBytes) return add_window(kWindow, kWindowBytes, x, count, *low);
      if (span <= kWideWindowBytes && in_bytes_ >= kWideWindowBytes) {
        return add_window(kWideWindow, kWideWindowBytes, x, count, *low);
      }
    }
    const int64_t each = std::max<int64_t>(count, 1);
    if (!runs_.empty() && runs_.back().kind == kEach && runs_.back().in + runs_.back().bytes == x) {
      runs_.back().bytes += static_cast<int32_t>(each);
    } else {
      runs_.push_back({kEach, static_cast<int32_t>(each), x, x * pixel_, 0});
    }
    return x + each;
  }

  int64_t add_window(Kind kind, int64_t window, int64_t x, int64_t count, int64_t lowest) {
    const int64_t base = std::min(lowest * pixel_, in_bytes_ - window);
    const uint32_t table = static_cast<uint32_t>(tables_.size());
    tables_.resize(table + kRegister);
    for (int64_t p = 0; p < count; ++p) {
      for (int64_t b = 0; b < pixel_; ++b) {
        tables_[table + p * pixel_ + b] = static_cast<uint8_t>(pixels_[x + p] * pixel_ + b - base);
      }
    }
    runs_.push_back({kind, static_cast<int32_t>(count * pixel_), base, x * pixel_, table});
    return x + count;
  }

  int64_t pixel_;
  int64_t in_bytes_;
  CopyEach copy_;
  std::vector<int32_t> pixels_;  // per output the input pixel, -1 for a border
  std::vector<Run> runs_;
  std::vector<uint8_t> tables_;
};

}  // namespace polyphase
