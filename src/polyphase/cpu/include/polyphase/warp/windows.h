// 2 x 2 taps of sixteen pixels out of a window, on AVX-512. Where an image is neither turned nor shrunk, the left taps of
// neighbours are among sixteen pixels of one of its rows. These are read once, sorted by channel, and taps are picked from them.
//
// Sums are those of `eights.h` and `sixteens.h`, bit by bit. They return false where a value came out NaN.
#pragma once

#include <cstring>

#include "polyphase/core/cache.h"
#include "polyphase/core/unroll.h"
#include "polyphase/warp/pixels.h"

namespace polyphase {

#if defined(__AVX512F__)

constexpr int kWindow = 16;  // pixels

// The weights of sixteen pixels' taps, row by row.
struct SixteenWeights {
  Vec<float> a, b, c, d;
  SixteenWeights(const SquareTaps& taps, int i)
      : a(Vec<float>::load(taps.weight[0] + i)),
        b(Vec<float>::load(taps.weight[1] + i)),
        c(Vec<float>::load(taps.weight[2] + i)),
        d(Vec<float>::load(taps.weight[3] + i)) {}

  POLYPHASE_BLOCK Vec<float> sum(Vec<float> left, Vec<float> right, Vec<float> lower_left, Vec<float> lower_right) const {
    const Vec<float> upper = multiply_add(right, b, {left.v * a.v}), lower = multiply_add(lower_right, d, {lower_left.v * c.v});
    return upper.plus(lower);
  }
};

// Where the left taps of sixteen pixels are, from the first one's on, at which the window begins.
POLYPHASE_BLOCK __m512i offsets_in_window(const int32_t* first) {
  return _mm512_sub_epi32(_mm512_load_si512(first), _mm512_set1_epi32(first[0]));
}

// The same by pixels of kPixel elements, and those of right taps.
struct WindowPlaces {
  Vec<float>::Index left, right;

  template <int kPixel>
  POLYPHASE_BLOCK static WindowPlaces of(const int32_t* first) {
    __m512i left = offsets_in_window(first);
    // Divided, by a reciprocal that is rounded up: exact for offsets within a window, whose upper 16 bits are 0.
    if constexpr (kPixel > 1) left = _mm512_mulhi_epu16(left, _mm512_set1_epi32(0xffff / kPixel + 1));
    return {left, Vec<float>::advance(left, 1)};
  }
};

// A channel of the sixteen pixels of a window, and in the first lane that of the pixel after them.
struct WindowChannel {
  Vec<float> pixels, next;

  POLYPHASE_BLOCK static WindowChannel load(const float* plane) {
    return {Vec<float>::load(plane), {_mm512_castps128_ps512(_mm_load_ss(plane + kWindow))}};
  }
  POLYPHASE_BLOCK static WindowChannel load(const uint8_t* plane) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(plane));
    const __m128 next = _mm_set_ss(static_cast<float>(plane[kWindow]));
    return {{_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes))}, {_mm512_castps128_ps512(next)}};
  }

  POLYPHASE_BLOCK Vec<float> left(const WindowPlaces& places) const { return pixels.permuted(places.left); }
  POLYPHASE_BLOCK Vec<float> right(const WindowPlaces& places) const { return pixels.permuted(places.right, next); }
};

// A window of pixels of so many floats.
template <int kChannels>
struct WindowOfFloats {
  WindowChannel channel[kChannels];

  POLYPHASE_BLOCK explicit WindowOfFloats(const float* p) {
    Vec<float> vectors[kChannels];
    repeat<kChannels>([&](auto k) __attribute__((always_inline)) { vectors[k] = Vec<float>::load(p + k * kWindow); });
    sort(vectors);
    repeat<kChannels>([&](auto k) __attribute__((always_inline)) {
      channel[k] = {vectors[k], {_mm512_castps128_ps512(_mm_load_ss(p + kWindow * kChannels + k))}};
    });
  }

 private:
  struct alignas(64) Places {
    int32_t at[16];
    POLYPHASE_BLOCK Vec<float>::Index index() const { return Vec<float>::load_index(at); }
  };

  // From pixels in their order to channels.
  POLYPHASE_BLOCK static void sort(Vec<float> (&v)[2]) {
    const Vec<float>::Pair pair = unzipped(v[0].v, v[1].v);
    v[0] = pair.first, v[1] = pair.second;
  }

  // Of three channels, that which is in the first two vectors, and then the rest.
  static constexpr Places in_two(int channel) {
    Places places = {};
    for (int l = 0; l < 16; ++l) places.at[l] = 3 * l + channel < 32 ? 3 * l + channel : 0;
    return places;
  }
  static constexpr Places in_third(int channel) {
    Places places = {};
    for (int l = 0; l < 16; ++l) places.at[l] = 3 * l + channel < 32 ? l : 16 + 3 * l + channel - 32;
    return places;
  }
  POLYPHASE_BLOCK static void sort(Vec<float> (&v)[3]) {
    const Vec<float> p = v[0], q = v[1], r = v[2];
    repeat<3>([&](auto k) __attribute__((always_inline)) {
      static constexpr Places kTwo = in_two(k), kThird = in_third(k);
      v[k] = p.permuted(kTwo.index(), q).permuted(kThird.index(), r);
    });
  }

  // Of eight pixels, a channel and the next one.
  static constexpr Places of_eight(int channel) {
    Places places = {};
    for (int l = 0; l < 16; ++l) places.at[l] = 4 * (l % 8) + channel + l / 8;
    return places;
  }
  POLYPHASE_BLOCK static void sort(Vec<float> (&v)[4]) {
    const Vec<float> p = v[0], q = v[1], r = v[2], s = v[3];
    repeat<2>([&](auto k) __attribute__((always_inline)) {
      static constexpr Places kEight = of_eight(2 * k);
      const Vec<float> low = p.permuted(kEight.index(), q), high = r.permuted(kEight.index(), s);
      v[2 * k].v = _mm512_shuffle_f32x4(low.v, high.v, 0x44);
      v[2 * k + 1].v = _mm512_shuffle_f32x4(low.v, high.v, 0xee);
    });
  }
};

// A window of pixels of so many bytes: each in the first bytes of a lane.
template <int kChannels>
struct WindowOfBytes {
  __m512i pixels, next;

  POLYPHASE_BLOCK explicit WindowOfBytes(const uint8_t* p) {
    if constexpr (kChannels == 2) {
      pixels = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    } else if constexpr (kChannels == 3) {
      // Four pixels, which are three lanes, to each quarter of the register.
      const __m512i quarters = _mm512_setr_epi32(0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11);
      const __m512i fours = _mm512_permutexvar_epi32(quarters, _mm512_maskz_loadu_epi32(0x0fff, p));
      const __m128i lanes = _mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1);
      pixels = _mm512_shuffle_epi8(fours, _mm512_broadcast_i32x4(lanes));
    } else {
      pixels = _mm512_loadu_si512(p);
    }
    int32_t after;
    std::memcpy(&after, p + kWindow * kChannels, sizeof(after));
    next = _mm512_castsi128_si512(_mm_cvtsi32_si128(after));
  }

  POLYPHASE_BLOCK __m512i left(const WindowPlaces& places) const { return _mm512_permutexvar_epi32(places.left, pixels); }
  POLYPHASE_BLOCK __m512i right(const WindowPlaces& places) const {
    return _mm512_permutex2var_epi32(pixels, places.right, next);
  }
};

// Byte kByte of each lane as a float.
template <int kByte>
POLYPHASE_BLOCK Vec<float> byte_of_lanes(__m512i lanes) {
  if constexpr (kByte > 0) lanes = _mm512_srli_epi32(lanes, 8 * kByte);
  if constexpr (kByte < 3) lanes = _mm512_and_si512(lanes, _mm512_set1_epi32(0xff));
  return {_mm512_cvtepi32_ps(lanes)};
}

// Tiles of an image's planes, or of its pixels of up to four channels.
template <class S>
class WindowTiles {
 public:
  using Lanes = Vec<float>;

  // last: the last offset from which so many elements of two rows can be read.
  template <class Last>
  WindowTiles(const WarpCall& call, bool planes, const Last& last)
      : channels_(planes ? 1 : static_cast<int>(call.channels)),
        y_stride_(call.image_strides.y),
        channel_stride_(call.image_strides.channel) {
    const int64_t after = sizeof(S) == 1 && !planes ? sizeof(int32_t) : channels_;  // elements of the pixel after a window
    last_base_ = y_stride_ % channels_ == 0 ? last(kWindow * channels_ + after) : -1;
  }

  // Whether the pixels of a tile are in windows. Gathers of pixels of bytes are as quick.
  POLYPHASE_BLOCK bool hold(const int32_t (&first)[kTile]) const {
    if (kGathersPixels && channels_ > 1) return false;
    const uint32_t most = static_cast<uint32_t>((kWindow - 1) * channels_);
    bool may = true;  // by the last pixel of each: without a branch for every one of them, which would not be foreseen
    for (int i = 0; i < kTile; i += kWindow) may &= static_cast<uint32_t>(first[i + kWindow - 1] - first[i]) <= most;
    if (!may || max(first[0], first[kWindow]) > last_base_) return false;
    for (int i = 0; i < kTile; i += kWindow) {
      if (!Lanes::all(Lanes::within(offsets_in_window(first + i), static_cast<int32_t>(most)))) return false;
    }
    return true;
  }

  // As `prefetch_right`, line by line.
  POLYPHASE_BLOCK void prefetch(const S* row, int64_t channels, const int32_t (&first)[kTile]) const {
    constexpr int kLine = kCacheLine / static_cast<int>(sizeof(S));
    const S* right = row + first[kTile - 1];
    for (int64_t c = 0; c < channels; c += channels_, right += channel_stride_) {
      for (int at = 0; at < kTile * channels_ + kLine; at += kLine) __builtin_prefetch(right + at);
    }
  }

  // A tile that is in windows.
  POLYPHASE_BLOCK bool sum(const SquareTaps& taps, const S* image, int64_t channels, float* out, int64_t stride) const {
    if (channels_ == 1) return sum_planes(taps, image, channels, out, stride);
    if (channels_ == 2) return sum_pixels<2>(taps, image, out, stride);
    if (channels_ == 3) return sum_pixels<3>(taps, image, out, stride);
    return sum_pixels<4>(taps, image, out, stride);
  }

 private:
#if defined(__AVX512VBMI__)
  static constexpr bool kGathersPixels = sizeof(S) == 1;
#else
  static constexpr bool kGathersPixels = false;
#endif

  POLYPHASE_ROW_LOOP bool sum_planes(const SquareTaps& taps, const S* image, int64_t channels, float* out,
                                     int64_t stride) const {
    Lanes total = Lanes::zero();  // NaN where a value is
    for (int i = 0; i < kTile; i += kWindow) {
      const WindowPlaces places = WindowPlaces::of<1>(taps.first + i);
      const SixteenWeights weights(taps, i);
      const S* plane = image + taps.first[i];
      float* to = out + i;
      for (int64_t c = 0; c < channels; ++c, plane += channel_stride_, to += stride) {
        const WindowChannel upper = WindowChannel::load(plane), lower = WindowChannel::load(plane + y_stride_);
        const Lanes sum = weights.sum(upper.left(places), upper.right(places), lower.left(places), lower.right(places));
        total = total.plus(sum);
        sum.store(to);
      }
    }
    return sizeof(S) == 1 || !total.has_nan();
  }

  template <int kChannels>
  POLYPHASE_ROW_LOOP bool sum_pixels(const SquareTaps& taps, const S* image, float* out, int64_t stride) const {
    Lanes total = Lanes::zero();
    for (int i = 0; i < kTile; i += kWindow) {
      const WindowPlaces places = WindowPlaces::of<kChannels>(taps.first + i);
      const SixteenWeights weights(taps, i);
      const S *const above = image + taps.first[i], *const below = above + y_stride_;
      if constexpr (sizeof(S) == 1) {
        const WindowOfBytes<kChannels> upper(above), lower(below);
        const __m512i a = upper.left(places), b = upper.right(places), c = lower.left(places), d = lower.right(places);
        repeat<kChannels>([&](auto k) __attribute__((always_inline)) {
          weights.sum(byte_of_lanes<k>(a), byte_of_lanes<k>(b), byte_of_lanes<k>(c), byte_of_lanes<k>(d))
              .store(out + k * stride + i);
        });
      } else {
        const WindowOfFloats<kChannels> rows[2] = {WindowOfFloats<kChannels>(above), WindowOfFloats<kChannels>(below)};
        repeat<kChannels>([&](auto k) __attribute__((always_inline)) {
          const WindowChannel &upper = rows[0].channel[k], &lower = rows[1].channel[k];
          const Lanes sum = weights.sum(upper.left(places), upper.right(places), lower.left(places), lower.right(places));
          total = total.plus(sum);
          sum.store(out + k * stride + i);
        });
      }
    }
    return sizeof(S) == 1 || !total.has_nan();
  }

  int channels_;  // that are interleaved: 1 of planes
  int64_t y_stride_, channel_stride_;
  int64_t last_base_;  // no window may begin after it; -1: there is none, as rows are not whole pixels apart
};

#else

template <class S>
struct WindowTiles {
  template <class Last>
  WindowTiles(const WarpCall&, bool, const Last&) {}
  bool hold(const int32_t (&)[kTile]) const { return false; }
  void prefetch(const S*, int64_t, const int32_t (&)[kTile]) const {}
  bool sum(const SquareTaps&, const S*, int64_t, float*, int64_t) const { return false; }
};

#endif

}  // namespace polyphase
