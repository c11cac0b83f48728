// Bilinear tiles of images by the short vectors of NEON: floats, and bytes made floats; planes, and pixels of up to four.
//
// First the places and weights of all pixels of a tile are found, as if all taps lay inside the image; if some do not, once
// more with these taps moved inside. Then pixels are read and summed. Both are loops without branches, which do the same to
// several vectors before they go on with any. A tile that cannot be done here is done by arrays (taps.h, sample.h): `sample`
// then returns false.
#pragma once

#include "polyphase/core/standard.h"
#include "polyphase/warp/pixels.h"
#include "polyphase/warp/positions.h"
#include "polyphase/warp/sample.h"

namespace polyphase {

#if defined(POLYPHASE_NEON)

// Conversions are slow. In a float from 2^23 on, the last bit is 1: a small whole number is put into the last bits of 2^23,
// which is then subtracted; or a number is added to the middle of such floats, and then found, rounded, in the last bits.
constexpr float kFrom23 = 0x1p23f, kMiddle23 = 0x1.8p23f;
constexpr uint32_t kBits23 = __builtin_bit_cast(uint32_t, kFrom23), kMiddleBits23 = __builtin_bit_cast(uint32_t, kMiddle23);
constexpr int64_t kMost23 = 1 << 22;  // from kMiddle23 on, so many whole numbers are counted by the last bits

// Pixels of so many bytes, all of whose channels are summed: eight bytes from the left tap on are both taps of a row.
template <int kChannels>
struct ByteSquares {
  // Channel c of the left taps or the right ones of four pixels.
  template <int c, bool kRight>
  POLYPHASE_BLOCK static Quad channel(neon::Bytes16 first_words, neon::Bytes16 second_words) {
    constexpr int kByte = c + (kRight ? kChannels : 0), kIn = kByte % 4;
    constexpr neon::Bytes16 kPlaces = {kIn,     255, 255, 16, kIn + 4,  255, 255, 16,
                                       kIn + 8, 255, 255, 16, kIn + 12, 255, 255, 16};
    constexpr neon::Bytes16 kLast = {kBits23 >> 24};  // the other bits are 0
    const auto picked = neon::pick(kByte < 4 ? first_words : second_words, kLast, kPlaces);
    return {reinterpret_cast<Quad::Register>(picked) - kFrom23};
  }

  // Both rows of four pixels' taps, in words of four bytes.
  struct Words {
    neon::Bytes16 above, above_rest, below, below_rest;
  };
  POLYPHASE_BLOCK static Words load(const uint8_t* image, const int32_t* first, int64_t y_stride) {
    const uint8_t *p = image + first[0], *q = image + first[1], *r = image + first[2], *s = image + first[3];
    const auto above_pq = neon::load_halves<neon::Bytes16>(p, q), above_rs = neon::load_halves<neon::Bytes16>(r, s);
    const auto below_pq = neon::load_halves<neon::Bytes16>(p + y_stride, q + y_stride);
    const auto below_rs = neon::load_halves<neon::Bytes16>(r + y_stride, s + y_stride);
    return {neon::even_lanes(above_pq, above_rs), neon::odd_lanes(above_pq, above_rs),
            neon::even_lanes(below_pq, below_rs), neon::odd_lanes(below_pq, below_rs)};
  }

  POLYPHASE_ROW_LOOP static void sum(const SquareTaps& taps, const uint8_t* image, int64_t y_stride, float* out,
                                     int64_t stride) {
    for (int i = 0; i < kTile; i += 4) {
      const Words now = load(image, taps.first + i, y_stride);
      const Quad a = Quad::load(taps.weight[0] + i), b = Quad::load(taps.weight[1] + i);
      const Quad c = Quad::load(taps.weight[2] + i), d = Quad::load(taps.weight[3] + i);
      Quad left[kChannels], right[kChannels], sums[kChannels];
      const auto each = [](const auto& function) __attribute__((always_inline)) { repeat<kChannels>(function); };
      each([&](auto k) { left[k] = channel<k, false>(now.above, now.above_rest); });
      each([&](auto k) { right[k] = channel<k, true>(now.above, now.above_rest); });
      each([&](auto k) { sums[k].v = left[k].v * a.v; });
      each([&](auto k) { left[k] = channel<k, false>(now.below, now.below_rest); });
      each([&](auto k) { sums[k] = multiply_add(right[k], b, sums[k]); });
      each([&](auto k) { right[k] = channel<k, true>(now.below, now.below_rest); });
      each([&](auto k) { sums[k] = multiply_add(left[k], c, sums[k]); });
      each([&](auto k) { sums[k] = multiply_add(right[k], d, sums[k]); });
      each([&](auto k) { sums[k].store(out + k * stride + i); });
    }
  }
};

// Prologue: none, or bytes made floats.
template <class Prologue, class Filter>
class InsideTiles {
 public:
  using S = typename Prologue::From;
  using V = typename Prologue::To;
  using Lanes = Vec<float>;
  static constexpr int kSide = kSideBySide;
  static constexpr bool kBytes = __is_same(Prologue, Widened<uint8_t, float>);
  static constexpr bool kFloats = __is_same(Prologue, Unchanged<float>);
  static constexpr bool kExists = __is_same(Filter, Linear) && (kBytes || kFloats);

  InsideTiles(const WarpCall& call, const PixelAxis<float>& x, const PixelAxis<float>& y)
      : channels_(static_cast<int>(call.channels)),
        x_stride_(static_cast<int32_t>(call.image_strides.x)),
        y_stride_(static_cast<int32_t>(call.image_strides.y)),
        channel_stride_(call.image_strides.channel),
        x_last_(static_cast<uint32_t>(x.last)),
        y_last_(static_cast<uint32_t>(y.last)),
        padding_(call.padding) {
    const bool pixels = call.channels > 1 && call.channels <= 4 && call.image_strides.channel == 1;
    if (pixels && call.image_strides.x == call.channels) {
      way_ = kPixels;
    } else if (!pixels && call.image_strides.x == 1) {
      way_ = kPlanes;
    }
    // From the first tap to the last element that is read, which is beyond the taps: that must be the image's too.
    const int64_t below = call.image_strides.y;
    const int64_t reach = below + (way_ == kPlanes ? 1 : kBytes ? 7 : call.channels + 3);
    const int64_t end = (call.in_size[1] - 1) * below + (call.in_size[2] - 1) * call.image_strides.x +
                        (way_ == kPixels ? call.channels - 1 : 0);
    last_first_ = static_cast<uint32_t>(end - reach);
    if (call.in_size[1] < 2 || call.in_size[2] < 2 || end < reach) way_ = kNone;
    if (call.in_size[1] > kMost23 || call.in_size[2] > kMost23) way_ = kNone;
  }

  // Whether there are tiles that can be done here.
  bool can() const { return way_ != kNone; }

  // A tile at these positions: so many channels, one row of `out` each. False where it cannot be done here, and where a value
  // came out NaN: a tap of weight 0 may be the reason.
  template <class EachBlock>
  POLYPHASE_BLOCK bool sample(const EachBlock& each_block, const S* image, int64_t channels, V* out, int64_t stride) {
    SquareTaps taps;
    // Where the tile before had nothing to read, this one likely has not either.
    if (nothing_ && finds_nothing(each_block)) return store_zeros(channels, out, stride);
    nothing_ = false;
    if (!locate(each_block, taps)) {
      const Found found = locate_anywhere(each_block, taps);
      nothing_ = found == Found::kNothing;
      if (nothing_) return store_zeros(channels, out, stride);
      if (found == Found::kNotHere) return false;
    }
    if (way_ == kPixels) prefetch_right(image, taps.first, 4);
    if constexpr (kBytes) {
      if (way_ == kPixels && channels_ == 2) return ByteSquares<2>::sum(taps, image, y_stride_, out, stride), true;
      if (way_ == kPixels && channels_ == 3) return ByteSquares<3>::sum(taps, image, y_stride_, out, stride), true;
      if (way_ == kPixels) return ByteSquares<4>::sum(taps, image, y_stride_, out, stride), true;
    } else if (way_ == kPixels) {
      return sum_pixels(taps, image, out, stride);
    }
    return sum_planes(taps, image, channels, out, stride);
  }

 private:
  enum Way { kNone, kPlanes, kPixels };
  enum class Found { kTaps, kNothing, kNotHere };  // taps to be read; none: the values are 0; some that are not for here

  // The weights of columns and rows, for the pixels from i on.
  POLYPHASE_BLOCK static void keep(SquareTaps& taps, int i, Quad::Register left, Quad::Register right, Quad::Register above,
                                   Quad::Register below) {
    Quad{above * left}.store(taps.weight[0] + i);
    Quad{above * right}.store(taps.weight[1] + i);
    Quad{below * left}.store(taps.weight[2] + i);
    Quad{below * right}.store(taps.weight[3] + i);
  }

  // False where a tap is outside. Of a position that is a whole number, the pixel there may be the left one or the right one.
  template <class EachBlock>
  POLYPHASE_BLOCK bool locate(const EachBlock& each_block, SquareTaps& taps) const {
    const uint32_t x_stride = static_cast<uint32_t>(x_stride_), y_stride = static_cast<uint32_t>(y_stride_);
    neon::Counts most_column = {}, most_row = {}, most_first = {};  // less than 0 is very much
    each_block([&](int i, const Lanes* x, const Lanes* y) __attribute__((always_inline)) {
      Quad::Register column[kSide], row[kSide], right[kSide], below[kSide];
      repeat<kSide>([&](auto k) __attribute__((always_inline)) {
        column[k] = (x[k].v - 0.5f) + kMiddle23;
        row[k] = (y[k].v - 0.5f) + kMiddle23;
      });
      repeat<kSide>([&](auto k) __attribute__((always_inline)) {
        right[k] = x[k].v - (column[k] - kMiddle23);
        below[k] = y[k].v - (row[k] - kMiddle23);
      });
      repeat<kSide>([&](auto k) __attribute__((always_inline)) {
        const neon::Counts at_x = reinterpret_cast<neon::Counts>(column[k]) - kMiddleBits23;
        const neon::Counts at_y = reinterpret_cast<neon::Counts>(row[k]) - kMiddleBits23;
        const neon::Counts first = at_x * x_stride + at_y * y_stride;
        most_column = neon::greater(most_column, at_x);
        most_row = neon::greater(most_row, at_y);
        most_first = neon::greater(most_first, first);
        neon::store(taps.first + i + 4 * k, first);
      });
      repeat<kSide>([&](auto k) __attribute__((always_inline)) {
        keep(taps, i + 4 * k, 1 - right[k], right[k], 1 - below[k], below[k]);
      });
    });
    return neon::all((most_column < x_last_) & (most_row < y_last_) & (most_first <= last_first_));
  }

  // A pair of taps that is not inside is moved there: each weighs by its own distance, and nothing from 1 pixel on.
  template <class EachBlock>
  POLYPHASE_ROW_LOOP Found locate_anywhere(const EachBlock& each_block, SquareTaps& taps) const {
    if (padding_ == kReflection) return Found::kNotHere;
    const Found found = search(each_block);
    if (found != Found::kTaps) return found;
    neon::Counts most_first = {};
    each_block([&](int i, const Lanes* x, const Lanes* y) __attribute__((always_inline)) {
      for (int k = 0; k < kSide; ++k) {
        const Moved columns = moved(x[k].v, x_last_), rows = moved(y[k].v, y_last_);
        const neon::Ints first = columns.place * x_stride_ + rows.place * y_stride_;
        most_first = neon::greater(most_first, reinterpret_cast<neon::Counts>(first));
        neon::store(taps.first + i + 4 * k, first);
        keep(taps, i + 4 * k, columns.first, columns.second, rows.first, rows.second);
      }
    });
    return neon::all(most_first <= last_first_) ? Found::kTaps : Found::kNotHere;
  }

  template <class EachBlock>
  POLYPHASE_ROW_LOOP bool finds_nothing(const EachBlock& each_block) const {
    return search(each_block) == Found::kNothing;
  }

  // Whether a tap may lie inside. Positions that are not finite are not for here.
  template <class EachBlock>
  POLYPHASE_BLOCK Found search(const EachBlock& each_block) const {
    constexpr float kLarge = 0x1p30f;
    Lanes least_x = Lanes::broadcast(kLarge), least_y = least_x, most_x = Lanes::broadcast(-kLarge), most_y = most_x;
    each_block([&](int, const Lanes* x, const Lanes* y) __attribute__((always_inline)) {
      repeat<kSide>([&](auto k) __attribute__((always_inline)) {
        least_x.v = neon::lesser(least_x.v, x[k].v), most_x.v = neon::greater(most_x.v, x[k].v);
        least_y.v = neon::lesser(least_y.v, y[k].v), most_y.v = neon::greater(most_y.v, y[k].v);
      });
    });
    const neon::Ints finite = (least_x.v > -kLarge) & (most_x.v < kLarge) & (least_y.v > -kLarge) & (most_y.v < kLarge);
    if (!neon::all(finite)) return Found::kNotHere;
    const float x_end = static_cast<float>(x_last_ + 1), y_end = static_cast<float>(y_last_ + 1);
    const bool outside = neon::all(most_x.v <= -1) || neon::all(least_x.v >= x_end) || neon::all(most_y.v <= -1) ||
                         neon::all(least_y.v >= y_end);
    return outside && padding_ == kZeros ? Found::kNothing : Found::kTaps;
  }

  struct Moved {
    neon::Ints place;               // of the first
    Quad::Register first, second;  // weights
  };
  POLYPHASE_BLOCK Moved moved(Quad::Register position, uint32_t last_pixel) const {
    const float last = static_cast<float>(last_pixel);
    const Quad::Register none = {}, end = Lanes::broadcast(last).v, before = Lanes::broadcast(last - 1).v;
    if (padding_ == kBorder) position = neon::lesser(neon::greater(position, none), end);
    const neon::Ints place = neon::rounded_down(neon::lesser(neon::greater(position, none), before));
    const Quad::Register from_first = position - __builtin_convertvector(place, Quad::Register);
    return {place, neon::greater(1 - neon::absolute(from_first), none),
            neon::greater(1 - neon::absolute(from_first - 1), none)};
  }

  static bool store_zeros(int64_t channels, float* out, int64_t stride) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int i = 0; i < kTile; i += 4) Quad::zero().store(out + c * stride + i);
    }
    return true;
  }

  // The taps of a pixel, each a vector of its channels.
  struct Corners {
    Quad upper_left, upper_right, lower_left, lower_right;

    POLYPHASE_BLOCK Quad sum(Quad weights) const {
      const Quad::Register left = neon::multiply_lane<0>(upper_left.v, weights.v);
      const Quad::Register below = neon::multiply_lane<2>(lower_left.v, weights.v);
      return {neon::multiply_add_lane<1>(upper_right.v, weights.v, left) +
              neon::multiply_add_lane<3>(lower_right.v, weights.v, below)};
    }
  };

  // Pixels of two to four floats.
  POLYPHASE_ROW_LOOP bool sum_pixels(const SquareTaps& taps, const float* image, float* out, int64_t stride) const {
    float* const rows[4] = {out, out + stride, out + 2 * stride, out + 3 * stride};
    const int64_t right = channels_, y_stride = y_stride_;
    const int channels = channels_;
    Quad total = Quad::zero();  // NaN where a value is
    const auto load = [&](int i) __attribute__((always_inline)) {
      const float *above = image + taps.first[i], *below = above + y_stride;
      return Corners{Quad::load(above), Quad::load(above + right), Quad::load(below), Quad::load(below + right)};
    };
    for (int i = 0; i < kTile; i += 4) {
      Quad a = Quad::load(taps.weight[0] + i), b = Quad::load(taps.weight[1] + i);
      Quad c = Quad::load(taps.weight[2] + i), d = Quad::load(taps.weight[3] + i);
      transpose(a, b, c, d);
      const Corners first = load(i), second = load(i + 1);
      const Quad p = first.sum(a), q = second.sum(b);
      const Corners third = load(i + 2), fourth = load(i + 3);
      const Quad r = third.sum(c), s = fourth.sum(d);
      total.v += (p.v + q.v) + (r.v + s.v);
      store_channels(p, q, r, s, i, channels, rows);
    }
    return are_numbers(total, channels);
  }

  // Of the first few lanes.
  static bool are_numbers(Quad values, int count) {
    return neon::all((values.v == values.v) | (neon::Ints{0, 1, 2, 3} >= count));
  }

  POLYPHASE_ROW_LOOP bool sum_planes(const SquareTaps& taps, const S* image, int64_t channels, float* out,
                                     int64_t stride) const {
    const int64_t y_stride = y_stride_;
    Quad total = Quad::zero();
    for (int i = 0; i < kTile; i += 4) {
      const int32_t* first = taps.first + i;
      const S *p = image + first[0], *q = image + first[1], *r = image + first[2], *s = image + first[3];
      const Quad a = Quad::load(taps.weight[0] + i), b = Quad::load(taps.weight[1] + i);
      const Quad c = Quad::load(taps.weight[2] + i), d = Quad::load(taps.weight[3] + i);
      float* to = out + i;
      for (int64_t channel = 0; channel < channels; ++channel, to += stride) {
        const Pair above = load_pairs(p, q, r, s);
        const Pair below = load_pairs(p + y_stride, q + y_stride, r + y_stride, s + y_stride);
        const Quad upper = multiply_add(above.right, b, {above.left.v * a.v});
        const Quad lower = multiply_add(below.right, d, {below.left.v * c.v});
        const Quad sum = {upper.v + lower.v};
        total.v += sum.v;
        sum.store(to);
        p += channel_stride_, q += channel_stride_, r += channel_stride_, s += channel_stride_;
      }
    }
    return kBytes || are_numbers(total, 4);
  }

  // Four pixels of a plane, and the pixel to the right of each.
  struct Pair {
    Quad left, right;
  };
  POLYPHASE_BLOCK static Pair load_pairs(const float* p, const float* q, const float* r, const float* s) {
    const auto pq = neon::load_halves<Quad::Register>(p, q), rs = neon::load_halves<Quad::Register>(r, s);
    return {{neon::even_lanes(pq, rs)}, {neon::odd_lanes(pq, rs)}};
  }
  POLYPHASE_BLOCK static Pair load_pairs(const uint8_t* p, const uint8_t* q, const uint8_t* r, const uint8_t* s) {
    const auto word = [](const uint8_t* two) __attribute__((always_inline)) {
      uint16_t both;
      std::memcpy(&both, two, sizeof(both));
      return static_cast<int32_t>(both);
    };
    const neon::Ints words = {word(p), word(q), word(r), word(s)};
    return {{__builtin_convertvector(words & 0xff, Quad::Register)}, {__builtin_convertvector(words >> 8, Quad::Register)}};
  }

  Way way_ = kNone;
  int channels_;
  int32_t x_stride_, y_stride_;
  int64_t channel_stride_;
  uint32_t x_last_, y_last_;  // the last column and row
  uint32_t last_first_;       // no first tap may lie behind it
  int64_t padding_;
  bool nothing_ = false;  // of the latest tile
};

#endif

}  // namespace polyphase
