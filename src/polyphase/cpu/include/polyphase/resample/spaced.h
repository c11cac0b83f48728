// Pixels that do not lie side by side, copied.
#pragma once

#include <cstdint>
#include <cstring>

#include "polyphase/core/abi.h"

namespace polyphase {

struct Spaced {
  const uint8_t* in;
  int64_t in_stride;  // bytes from a pixel to the next
  uint8_t* out;
  int64_t out_stride;
};

// A constant size is one move or two, not a call.
template <int kBytes>
inline void copy_spaced(Spaced s, int64_t count) {
  for (int64_t x = 0; x < count; ++x, s.in += s.in_stride, s.out += s.out_stride) std::memcpy(s.out, s.in, kBytes);
}

// Of 16 bytes, or 64, the first three of every four. A vector of GCC and Clang, without intrinsics, whose declarations take
// longer to read than all the rest of a kernel.
#if defined(__AVX512VBMI__)
constexpr int64_t kPackedAtOnce = 16;  // pixels
#else
constexpr int64_t kPackedAtOnce = 4;
#endif
#if defined(__has_builtin) && (defined(__SSSE3__) || defined(__aarch64__))
#if __has_builtin(__builtin_shufflevector)
#define POLYPHASE_PACKS_PIXELS 1
typedef uint8_t PixelBytes __attribute__((vector_size(4 * kPackedAtOnce), aligned(1), may_alias));
inline PixelBytes three_of_four(PixelBytes v) {
#if defined(__AVX512VBMI__)
  return __builtin_shufflevector(v, v, 0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 16, 17, 18, 20, 21, 22, 24, 25, 26, 28, 29, 30,
                                 32, 33, 34, 36, 37, 38, 40, 41, 42, 44, 45, 46, 48, 49, 50, 52, 53, 54, 56, 57, 58, 60, 61,
                                 62, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
#else
  return __builtin_shufflevector(v, v, 0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
#endif
}
#endif
#endif

// Pixels of three bytes that have a fourth beside them, side by side. Nothing is read beyond the third byte of the last one;
// what a vector writes too much, the next pixels overwrite.
POLYPHASE_ROW_LOOP inline void pack_three_of_four(Spaced s, int64_t count) {
#if defined(POLYPHASE_PACKS_PIXELS)
  for (; count > 2 * kPackedAtOnce; count -= kPackedAtOnce, s.in += 4 * kPackedAtOnce, s.out += 3 * kPackedAtOnce) {
    *reinterpret_cast<PixelBytes*>(s.out) = three_of_four(*reinterpret_cast<const PixelBytes*>(s.in));
  }
#endif
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  for (; count > 4; count -= 4, s.in += 16, s.out += 12) {
    uint32_t p[4];
    std::memcpy(p, s.in, 16);
    const uint32_t three[3] = {(p[0] & 0xffffff) | p[1] << 24, (p[1] >> 8 & 0xffff) | p[2] << 16, (p[2] >> 16 & 0xff) | p[3] << 8};
    std::memcpy(s.out, three, 12);
  }
#endif
  copy_spaced<3>(s, count);
}

POLYPHASE_ROW_LOOP inline void copy_spaced(Spaced s, int64_t count, int64_t pixel_bytes) {
  switch (pixel_bytes) {
    case 1: return copy_spaced<1>(s, count);
    case 2: return copy_spaced<2>(s, count);
    case 3: return s.in_stride == 4 && s.out_stride == 3 ? pack_three_of_four(s, count) : copy_spaced<3>(s, count);
    case 4: return copy_spaced<4>(s, count);
    case 6: return copy_spaced<6>(s, count);
    case 8: return copy_spaced<8>(s, count);
    case 12: return copy_spaced<12>(s, count);
    case 16: return copy_spaced<16>(s, count);
  }
  for (int64_t x = 0; x < count; ++x, s.in += s.in_stride, s.out += s.out_stride) {
    std::memcpy(s.out, s.in, static_cast<size_t>(pixel_bytes));
  }
}

// Whether pixels, and the elements of each, lie side by side. Strides are in elements.
inline bool are_dense(int64_t x_stride, int64_t channel_stride, int64_t channels, int64_t pixels) {
  return (channels == 1 || channel_stride == 1) && (pixels == 1 || x_stride == channels);
}

// `length` bytes filled with the same few, over and over.
inline void fill_repeating(uint8_t* out, int64_t length, const void* few, int64_t bytes) {
  std::memcpy(out, few, bytes);
  for (int64_t done = bytes; done < length; done *= 2) {  // what is there, doubled
    std::memcpy(out + done, out, done < length - done ? done : length - done);
  }
}

// A plain loop that a compiler makes vectors of, also in a kernel where it is asked for none.
#if defined(__GNUC__) && !defined(__clang__)
#define POLYPHASE_VECTORISED __attribute__((noinline, optimize("tree-vectorize")))
#else
#define POLYPHASE_VECTORISED __attribute__((noinline))
#endif

// Pixels of three elements to three planes of so many.
template <class T>
POLYPHASE_VECTORISED void take_apart(const T* __restrict in, T* __restrict r, T* __restrict g, T* __restrict b,
                                   int64_t count) {
  for (int64_t x = 0; x < count; ++x) {
    r[x] = in[3 * x];
    g[x] = in[3 * x + 1];
    b[x] = in[3 * x + 2];
  }
}

// Blocks of eight by eight elements of four bytes are turned by shuffles, in lanes of 16 bytes first.
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define POLYPHASE_TURNS_PIXELS 1
typedef uint32_t EightElements __attribute__((vector_size(32), aligned(4), may_alias));

// Row r from `in + r * in_stride` on to column r of the rows from `out` on.
inline void turn_eight(const void* in, int64_t in_stride, void* out, int64_t out_stride) {
  const auto* const from = static_cast<const uint32_t*>(in);
  auto* const to = static_cast<uint32_t*>(out);
  const auto row = [&](int64_t r) { return *reinterpret_cast<const EightElements*>(from + r * in_stride); };
  const auto put = [&](int64_t r, EightElements v) { *reinterpret_cast<EightElements*>(to + r * out_stride) = v; };
  const auto low = [](EightElements a, EightElements b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13); };
  const auto high = [](EightElements a, EightElements b) { return __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15); };
  const auto even = [](EightElements a, EightElements b) { return __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13); };
  const auto odd = [](EightElements a, EightElements b) { return __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15); };
  const auto put_both = [&](int64_t r, EightElements a, EightElements b) {
    put(r, __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11));
    put(r + 4, __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15));
  };
  const EightElements a = row(0), b = row(1), c = row(2), d = row(3), e = row(4), f = row(5), g = row(6), h = row(7);
  const EightElements ab = low(a, b), cd = low(c, d), ef = low(e, f), gh = low(g, h);
  put_both(0, even(ab, cd), even(ef, gh));
  put_both(1, odd(ab, cd), odd(ef, gh));
  const EightElements more_ab = high(a, b), more_cd = high(c, d), more_ef = high(e, f), more_gh = high(g, h);
  put_both(2, even(more_ab, more_cd), even(more_ef, more_gh));
  put_both(3, odd(more_ab, more_cd), odd(more_ef, more_gh));
}
#endif
#endif

// So many rows and columns, turned; false where they are too few, or not for here. The last blocks may begin within others.
template <class T>
POLYPHASE_ROW_LOOP bool turn_pixels(const T* in, int64_t in_stride, T* out, int64_t out_stride, int64_t rows, int64_t columns) {
#if defined(POLYPHASE_TURNS_PIXELS)
  if constexpr (sizeof(T) == 4) {
    if (rows < 8 || columns < 8) return false;
    for (int64_t next = 0; next < rows; next += 8) {
      const int64_t r = next + 8 <= rows ? next : rows - 8;
      for (int64_t after = 0; after < columns; after += 8) {
        const int64_t c = after + 8 <= columns ? after : columns - 8;
        turn_eight(in + r * in_stride + c, in_stride, out + c * out_stride + r, out_stride);
      }
    }
    return true;
  }
#endif
  return false;
}

// Four channels of so many pixels.
template <class T>
POLYPHASE_ROW_LOOP void copy_four_channels(const T* in, int64_t in_stride, int64_t in_channel_stride, T* out,
                                           int64_t out_stride, int64_t out_channel_stride, int64_t count) {
  const T *a = in, *b = a + in_channel_stride, *c = b + in_channel_stride, *d = c + in_channel_stride;
  T *p = out, *q = p + out_channel_stride, *r = q + out_channel_stride, *s = r + out_channel_stride;
  int64_t from = 0, to = 0;
  for (int64_t x = 0; x < count; ++x, from += in_stride, to += out_stride) {
    const T first = a[from], second = b[from], third = c[from], fourth = d[from];
    p[to] = first, q[to] = second, r[to] = third, s[to] = fourth;
  }
}

// Pixels of so many elements, whose elements may lie apart too; elements are copied channel by channel then.
template <class T>
inline void copy_pixels(const T* in, int64_t in_stride, int64_t in_channel_stride, T* out, int64_t out_stride,
                        int64_t out_channel_stride, int64_t channels, int64_t count) {
  constexpr int64_t kSize = sizeof(T);
  if (channels == 3 && in_stride == 3 && in_channel_stride == 1 && out_stride == 1 && out_channel_stride >= count) {
    return take_apart(in, out, out + out_channel_stride, out + 2 * out_channel_stride, count);
  }
  const bool whole = channels == 1 || (in_channel_stride == 1 && out_channel_stride == 1);
  if (!whole && in_stride == 1 && out_channel_stride == 1 && turn_pixels(in, in_channel_stride, out, out_stride, channels, count)) return;
  if (!whole && in_channel_stride == 1 && out_stride == 1 && turn_pixels(in, in_stride, out, out_channel_stride, count, channels)) return;
  int64_t c = 0;
  for (; !whole && c + 4 <= channels; c += 4) {
    copy_four_channels(in + c * in_channel_stride, in_stride, in_channel_stride, out + c * out_channel_stride, out_stride,
                       out_channel_stride, count);
  }
  for (; c < (whole ? 1 : channels); ++c) {
    const Spaced pixels = {reinterpret_cast<const uint8_t*>(in + c * in_channel_stride), in_stride * kSize,
                           reinterpret_cast<uint8_t*>(out + c * out_channel_stride), out_stride * kSize};
    copy_spaced(pixels, count, whole ? channels * kSize : kSize);
  }
}

}  // namespace polyphase
