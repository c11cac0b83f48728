// Weighted sums of uint8 rows with 16 bit weights, rounded to uint8 after each pass: ATen's arithmetic to the bit.
//
//     out = saturate((half + sum of weight * value) >> precision)     half = 1 << (precision - 1)
#pragma once

#include "polyphase/core/abi.h"
#include "polyphase/core/buffer.h"
#include "polyphase/core/standard.h"
#include "polyphase/resample/ahead.h"
#include "polyphase/resample/byte_dots.h"
#include "polyphase/resample/byte_windows.h"
#include "polyphase/resample/four_rows.h"
#include "polyphase/simd/bytes.h"

namespace polyphase {

// The 16 bit weights of taps 2k and 2k + 1 as one 32 bit lane.
inline int32_t pair_of(int16_t low, int16_t high) {
  return static_cast<int32_t>((static_cast<uint32_t>(high) << 16) | static_cast<uint16_t>(low));
}

// taps weights become (taps + 1) / 2 pairs.
inline void pack_pairs(const int16_t* weights, int taps, int32_t* pairs) {
  for (int k = 0; k < taps; k += 2) pairs[k / 2] = pair_of(weights[k], k + 1 < taps ? weights[k + 1] : int16_t{0});
}

inline uint8_t rounded(int32_t sum, int precision) {
  return static_cast<uint8_t>(clamp(sum >> precision, 0, 255));
}

// The rows are given in pairs too: of an odd number the last is given twice, and weighs 0 the second time.
inline void vertical_plain(const uint8_t* const* rows, const int32_t* pairs, int taps, int precision, uint8_t* out,
                           int64_t length) {
  constexpr int kBlock = 256;
  for (int64_t i = 0; i < length; i += kBlock) {
    const int n = static_cast<int>(min<int64_t>(kBlock, length - i));
    int32_t sum[kBlock];
    for (int j = 0; j < n; ++j) sum[j] = 1 << (precision - 1);
    for (int k = 0; k < taps; ++k) {
      const int16_t weight = static_cast<int16_t>(pairs[k / 2] >> (k % 2 * 16));
      const uint8_t* row = rows[k] + i;
      for (int j = 0; j < n; ++j) sum[j] += static_cast<int16_t>(row[j]) * weight;
    }
    for (int j = 0; j < n; ++j) out[i + j] = rounded(sum[j], precision);
  }
}

#if defined(POLYPHASE_BYTE_VECTORS)

// What two rows add to the sums of LongestBytes::kSize outputs, in the order `LongestBytes::pack_bytes` takes them. `pair`: their weights.
#if defined(POLYPHASE_NEON)
POLYPHASE_BLOCK void add_rows(LongestBytes::Register a, LongestBytes::Register b, const int32_t* pair, LongestBytes::Register& p,
                              LongestBytes::Register& q, LongestBytes::Register& r, LongestBytes::Register& s) {
  using namespace neon;
  const Shorts weights = {reinterpret_cast<const int16_t*>(pair)[0], reinterpret_cast<const int16_t*>(pair)[1]};
  const Shorts a_low = widened_low(a), a_high = widened_high(a), b_low = widened_low(b), b_high = widened_high(b);
  const auto add_low = [&](LongestBytes::Register& sum, Shorts first, Shorts second) {
    sum = LongestBytes::of(add_products_low<1>(add_products_low<0>(LongestBytes::sums(sum), first, weights), second, weights));
  };
  const auto add_high = [&](LongestBytes::Register& sum, Shorts first, Shorts second) {
    sum = LongestBytes::of(add_products_high<1>(add_products_high<0>(LongestBytes::sums(sum), first, weights), second, weights));
  };
  add_low(p, a_low, b_low), add_high(q, a_low, b_low);
  add_low(r, a_high, b_high), add_high(s, a_high, b_high);
}
#else
// Pairs of bytes are put side by side and then parted by a mask and a shift: to interleave single bytes and widen them takes
// as many instructions, but all of them would need the ports of the permutations.
POLYPHASE_BLOCK void add_rows(LongestBytes::Register a, LongestBytes::Register b, const int32_t* pair, LongestBytes::Register& p,
                              LongestBytes::Register& q, LongestBytes::Register& r, LongestBytes::Register& s) {
  const LongestBytes::Register weights = LongestBytes::broadcast(*pair);
  const LongestBytes::Register low = LongestBytes::words_low(a, b), high = LongestBytes::words_high(a, b);
  p = LongestBytes::dot(p, LongestBytes::even_bytes(low), weights);
  q = LongestBytes::dot(q, LongestBytes::odd_bytes(low), weights);
  r = LongestBytes::dot(r, LongestBytes::even_bytes(high), weights);
  s = LongestBytes::dot(s, LongestBytes::odd_bytes(high), weights);
}
#endif

// The LongestBytes::kSize outputs, or fewer, from one place on.
POLYPHASE_BLOCK void vertical_block(const uint8_t* const* rows, const int32_t* pairs, int taps, int precision, uint8_t* out,
                           int64_t i, int n) {
  using Register = LongestBytes::Register;
  const Register bits = LongestBytes::broadcast(precision);
  Register p = LongestBytes::broadcast(1 << (precision - 1)), q = p, r = p, s = p;  // an array would lie in memory
  for (int k = 0; k < taps; k += 2, ++pairs) {
    const Register a = LongestBytes::load_first(rows[k] + i, n), b = LongestBytes::load_first(rows[k + 1] + i, n);
    add_rows(a, b, pairs, p, q, r, s);
  }
  p = LongestBytes::shift_right(p, bits), q = LongestBytes::shift_right(q, bits);
  r = LongestBytes::shift_right(r, bits), s = LongestBytes::shift_right(s, bits);
  LongestBytes::store_first(out + i, n, LongestBytes::pack_bytes(p, q, r, s));
}

POLYPHASE_ROW_LOOP inline void vertical(const uint8_t* const* rows, const int32_t* pairs, int taps, int precision, uint8_t* out,
                     int64_t length) {
  if (length < LongestBytes::kSize) {
    if (length > 0) vertical_block(rows, pairs, taps, precision, out, 0, static_cast<int>(length));
    return;
  }
  int64_t i = 0;
  for (; i + LongestBytes::kSize <= length; i += LongestBytes::kSize) {
    vertical_block(rows, pairs, taps, precision, out, i, LongestBytes::kSize);
    fetch_target(out + i);
  }
  // The rest overlaps the block before: the same values once more.
  if (i < length) vertical_block(rows, pairs, taps, precision, out, length - LongestBytes::kSize, LongestBytes::kSize);
}

#else

POLYPHASE_ROW_LOOP inline void vertical(const uint8_t* const* rows, const int32_t* pairs, int taps, int precision, uint8_t* out,
                     int64_t length) {
  vertical_plain(rows, pairs, taps, precision, out, length);
}

#endif

// The horizontal pass over a row of pixels of so many bytes, of which the first `channels` are wanted.
class ByteLanes {
 public:
  ByteLanes(const Taps& taps, int64_t channels, int64_t pixel, int64_t)
      : channels_(channels), pixel_(pixel), precision_(taps.precision) {
#if defined(POLYPHASE_BYTE_VECTORS)
    const bool by_fours = FourRows::takes(channels);
    const bool picks = channels < Bytes::kSize / 2 && !(by_fours && widest_of(taps, 0, taps.out_size - 1) > FourRows::kMostPicked);
    for (int windows = 1; picks && windows <= Bytes::kMostWindows; ++windows) {
      if (windows_.build(taps, channels, pixel, windows)) {
        way_ = kWindows;
        return;
      }
    }
    if (by_fours) {
      way_ = kFourRows;
      four_rows_.build(taps, channels, pixel);
      return;
    }
    if (pixel <= ByteDots::kMostChannels) {
      way_ = kDots;
      channels_ = pixel;
      dots_.build(taps, pixel);
      return;
    }
#endif
    begin_.assign(taps.begin, taps.out_size + 1);
    index_.assign(taps.index, taps.begin[taps.out_size]);
    weights_.assign(taps.quantised, taps.begin[taps.out_size]);
  }

  int64_t channels() const { return channels_; }

  int64_t readable_length() const {
#if defined(POLYPHASE_BYTE_VECTORS)
    if (way_ == kWindows) return windows_.readable_length();
    if (way_ == kDots) return dots_.readable_length();
#endif
    return 0;
  }

  size_t bytes() const {
    size_t own = sizeof(*this) + begin_.bytes() + index_.bytes() + weights_.bytes();
#if defined(POLYPHASE_BYTE_VECTORS)
    own += windows_.bytes() + dots_.bytes() + four_rows_.bytes();
#endif
    return own;
  }

  // Only for single rows that shrink much: to read these takes longer than to sum them.
  bool fetches() const {
#if defined(POLYPHASE_BYTE_VECTORS)
    return way_ == kDots || windows_.has_many();
#endif
    return false;
  }

  POLYPHASE_ROW_LOOP void run(const uint8_t* in, uint8_t* out, [[maybe_unused]] const Ahead* ahead) const {
#if defined(POLYPHASE_BYTE_VECTORS)
    if (way_ == kDots) return dots_.run(in, out, ahead);
    if (way_ == kFourRows) return four_rows_.run(&in, &out, 1);
    if (way_ == kWindows) return run_windows(in, in, out, out, ahead);
#endif
    if (channels_ > 4) return run_many_channels(in, out);
    run_plain(in, out);
  }

#if defined(POLYPHASE_BYTE_VECTORS)
  bool goes_together() const { return way_ == kFourRows || (way_ == kWindows && ByteWindows::kRows > 1); }
  void run(const uint8_t* const* in, uint8_t* const* out, int rows) const {
    if (way_ == kFourRows) return four_rows_.run(in, out, rows);
    for (int r = 0; r < rows; r += ByteWindows::kRows) {  // an odd one twice
      const int last = min(r + ByteWindows::kRows, rows) - 1;
      const Ahead ahead = windows_.after(in[r], in[last]);
      run_windows(in[r], in[last], out[r], out[last], &ahead);
    }
  }
#else
  bool goes_together() const { return false; }
  void run(const uint8_t* const*, uint8_t* const*, int) const {}
#endif


 private:
#if defined(POLYPHASE_BYTE_VECTORS)
  // A row, or two, where windows are for two at a time.
  void run_windows(const uint8_t* in, const uint8_t* other_in, uint8_t* out, uint8_t* other_out, const Ahead* ahead) const {
    const uint8_t* const two_in[2] = {in, other_in};
    uint8_t* const two_out[2] = {out, other_out};
    windows_.run(two_in, two_out, ahead);
  }
#endif

  void run_plain(const uint8_t* in, uint8_t* out) const {
    const int64_t pixels = begin_.size() - 1;
    for (int64_t x = 0; x < pixels; ++x) {
      for (int64_t c = 0; c < channels_; ++c) {
        int32_t sum = 1 << (precision_ - 1);
        for (int32_t t = begin_[x]; t < begin_[x + 1]; ++t) sum += in[index_[t] * pixel_ + c] * weights_[t];
        out[x * channels_ + c] = rounded(sum, precision_);
      }
    }
  }

  // An output pixel is a vertical sum, with the input pixels as rows of so many channels.
  void run_many_channels(const uint8_t* in, uint8_t* out) const {
    Buffer<const uint8_t*> pixels;
    Buffer<int32_t> pairs;
    const int64_t count = begin_.size() - 1;
    for (int64_t x = 0; x < count; ++x) {
      const int taps = begin_[x + 1] - begin_[x];
      pixels.resize(0);
      for (int32_t t = begin_[x]; t < begin_[x + 1]; ++t) pixels.push_back(in + index_[t] * channels_);
      if (taps > 0) pixels.push_back(pixels.back());
      pairs.resize((taps + 1) / 2);
      const int16_t* w = weights_.data() + begin_[x];
      pack_pairs(w, taps, pairs.data());
      vertical(pixels.data(), pairs.data(), taps, precision_, out + x * channels_, channels_);
    }
  }

  enum Way { kTaps, kWindows, kDots, kFourRows };
  Way way_ = kTaps;
  int64_t channels_, pixel_;
  int precision_;
#if defined(POLYPHASE_BYTE_VECTORS)
  ByteWindows windows_;
  ByteDots dots_;
#endif
  FourRows four_rows_;
  Buffer<int32_t> begin_, index_;
  Buffer<int16_t> weights_;
};

struct QuantisedSampler {
  using Value = uint8_t;
  using Lanes = ByteLanes;
  static constexpr TapArithmetic kArithmetic = TapArithmetic::kQuantised, kFindsNearest = kArithmetic;
  static constexpr bool kSums = true;
  static constexpr bool kAnyOrder = false;  // eager rounds after the horizontal pass, then after the vertical one

  static void pack(const Taps& all, int64_t first, int taps, void* packed) {
    pack_pairs(all.quantised + first, taps, static_cast<int32_t*>(packed));
  }
  static void sum(const uint8_t* const* rows, const void* packed, int taps, int precision, uint8_t* out, int64_t length,
                  const Ahead*) {
    vertical(rows, static_cast<const int32_t*>(packed), taps, precision, out, length);
  }
};

}  // namespace polyphase
