// Weighted sums of uint8 rows with 16 bit weights, rounded to uint8 after each pass: ATen's arithmetic to the bit.
//
//     out = saturate((half + sum of weight * value) >> precision)     half = 1 << (precision - 1)
#pragma once

#include "polyphase/core/abi.h"
#include "polyphase/core/buffer.h"
#include "polyphase/core/standard.h"
#include "polyphase/core/unroll.h"
#include "polyphase/resample/ahead.h"
#include "polyphase/resample/byte_dots.h"
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

#if defined(POLYPHASE_BYTE_SHUFFLES)

// The horizontal pass with few taps. What all lanes of a block read for a pair of taps lies in one window of the row (AVX2:
// in one for each half of a register; AVX-512: or in a few adjoining ones). For the next pair of taps, windows move on by
// two pixels.
class ByteWindows {
 public:
  // False where lanes lie too far apart. `windows`: how many a block has. Where a block is whole pixels only, it has fewer
  // lanes, which lie closer together: RGB that shrinks by 4 to 4.8 then has one window.
  bool build(const Taps& taps, int64_t channels, int windows) {
    if (build(taps, channels, windows, Bytes::kSums)) return true;
    *this = ByteWindows();
    const int64_t whole = Bytes::kSums / channels * channels;
    if (whole < Bytes::kSums && whole >= Bytes::kLeastLanes && build(taps, channels, windows, whole)) return true;
    *this = ByteWindows();
    return false;
  }

  bool has_many() const { return windows_ > 1; }
  int64_t readable_length() const { return readable_length_; }
  size_t bytes() const { return memory_.bytes(); }

  // kRows rows: by the same tables, which are then loaded once for all of them.
  static constexpr int kRows = Bytes::kRowsAtOnce;
  void run(const uint8_t* const* in, uint8_t* const* out, const Ahead* ahead) const {
    const int64_t count = block_count_;
    if (!has_many()) {
      return with_constant<1, 4>(pairs_, [&](auto pairs) { run_blocks<pairs, 1>(in, out, 0, count); });
    }
    if constexpr (Bytes::kMostWindows > 1) {
      constexpr int64_t kStep = 16;
      Fetching fetching(ahead, count / kStep + 1);
      for (int64_t b = 0; b < count; b += kStep) {
        fetching.step();
        with_constant<1, 1>(pairs_, [&](auto pairs) {
          with_constant<2, 2>(windows_, [&](auto windows) { run_blocks<pairs, windows>(in, out, b, min(count, b + kStep)); });
        });
      }
    }
  }

 private:
  static constexpr int kGroupLanes = Bytes::kSums / Bytes::kGroups;
  struct Block {
    int32_t bases[Bytes::kGroups];
  };

  // Copies of what a row reads: a byte that is stored may alias members, so these would be read again after every store.
  struct Read {
    const Block* blocks;
    const uint8_t* shuffles;
    const uint64_t* from;
    const int16_t* weights;
    int64_t step;  // from a pair to the next
    int windows, pairs;
    Bytes::Register half, bits, order;
  };

  bool build(const Taps& taps, int64_t channels, int windows, int64_t lanes) {
    channels_ = channels;
    windows_ = windows;
    lanes_ = lanes;
    out_length_ = taps.out_size * channels;
    precision_ = taps.precision;
    Bytes::fill_order(lanes, order_);
    const int64_t count = (out_length_ + lanes_ - 1) / lanes_;
    if (!may_fit(taps, count / 2 * lanes_)) return false;
    pairs_ = static_cast<int>((widest_of(taps, 0, taps.out_size - 1) + 1) / 2);
    if (has_many() && windows_ * pairs_ > most_shuffles()) return false;
    block_count_ = (count + 3) / 4 * 4;
    allocate();
    Place place(0, channels_);
    for (int64_t b = 0; b < count; ++b) {
      std::memset(shuffles_ + b * Bytes::kSize, Bytes::kNone, Bytes::kSize);
      const int64_t end = min((b + 1) * lanes_, out_length_);
      for (int64_t g = 0, from = b * lanes_; from < end; ++g, from += kGroupLanes) {
        if (!add_group(taps, b, g, min<int64_t>(kGroupLanes, end - from), place)) return false;
      }
    }
    for (int64_t b = count; b < block_count_; ++b) blocks_[b] = blocks_[count - 1];
    return true;
  }

  // All tables are one piece of memory, of zeros.
  void allocate() {
    const int64_t weights = block_count_ * pairs_ * 2 * Bytes::kSums * static_cast<int64_t>(sizeof(*weights_));
    const int64_t shuffles = block_count_ * Bytes::kSize;
    const int64_t from = has_many() ? block_count_ * windows_ * static_cast<int64_t>(sizeof(*from_)) : 0;
    memory_.resize(weights + shuffles + from + block_count_ * static_cast<int64_t>(sizeof(Block)));
    uint8_t* const memory = memory_.data();
    weights_ = reinterpret_cast<int16_t*>(memory);
    shuffles_ = memory + weights;
    from_ = has_many() ? reinterpret_cast<uint64_t*>(shuffles_ + shuffles) : nullptr;
    blocks_ = reinterpret_cast<Block*>(shuffles_ + shuffles + from);
  }

  // A quick look at a block in the middle of the row, before memory for all of them is allocated.
  bool may_fit(const Taps& taps, int64_t from) const {
    const int64_t x = from / channels_, last = min(from + lanes_ / Bytes::kGroups, out_length_) - 1;
    const int32_t begin = taps.begin[x], last_begin = taps.begin[last / channels_];
    if (begin == taps.begin[x + 1] || last_begin == taps.begin[last / channels_ + 1]) return true;  // a border
    const int64_t apart = taps.index[last_begin] - taps.index[begin];
    return max(apart, -apart) * channels_ < windows_ * Bytes::kWindow;
  }

  // Blocks [from, to), four at a time.
  template <int kPairs, int kWindows>
  POLYPHASE_ROW_LOOP void run_blocks(const uint8_t* const* rows, uint8_t* const* outs, int64_t from, int64_t to) const {
    const Read read = {blocks_, shuffles_, from_, weights_, 2 * channels_, windows_, pairs_,
                       Bytes::broadcast(1 << (precision_ - 1)), Bytes::broadcast(precision_), Bytes::load(order_)};
    const int64_t step = 4 * lanes_;
    const uint8_t *const in = rows[0], *const other_in = rows[kRows - 1];
    uint8_t *out = outs[0] + from * lanes_, *other_out = outs[kRows - 1] + from * lanes_;
    int64_t left = out_length_ - from * lanes_;
    for (int64_t b = from; b < to; b += 4, out += step, other_out += step, left -= step) {
      Bytes::Register sums[4], others[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) sum<kPairs, kWindows>(read, b + j, in, other_in, sums[j], others[j]);
      store(out, left, step, Bytes::pack_in_order(sums, read.order));
      if constexpr (kRows == 2) store(other_out, left, step, Bytes::pack_in_order(others, read.order));
    }
  }

  // Blocks with fewer lanes than a register store more than they are; the next ones overwrite it.
  POLYPHASE_BLOCK static void store(uint8_t* out, int64_t left, int64_t step, Bytes::Register packed) {
    if (left >= Bytes::kSize) {
      Bytes::store(out, packed);
    } else {
      Bytes::store_first(out, static_cast<int>(min(left, step)), packed);
    }
  }

  // A block of one row, and of the other where there are two.
  template <int kPairs, int kWindows>
  POLYPHASE_BLOCK static void sum(const Read& read, int64_t b, const uint8_t* in, const uint8_t* other_in,
                                  Bytes::Register& row, Bytes::Register& other) {
    const Block& block = read.blocks[b];
    const int pairs = kPairs == 0 ? read.pairs : kPairs;
    [[maybe_unused]] const int windows = kWindows == 0 ? read.windows : kWindows;
    const Bytes::Register shuffle = Bytes::load(read.shuffles + b * Bytes::kSize);
    const int16_t* weights = read.weights + b * pairs * 2 * Bytes::kSums;
    const auto values = [&](const uint8_t* from) {
      if constexpr (kWindows == 1) {
        return Bytes::shuffle_pairs(Bytes::windows(from, block.bases), shuffle);
      } else {
        return Bytes::shuffle_pairs(from + block.bases[0], windows, shuffle, read.from + b * windows);
      }
    };
    row = read.half, other = read.half;
#pragma GCC unroll 4
    for (int k = 0; k < pairs; ++k) {
      const Bytes::Register each = Bytes::load(weights + k * 2 * Bytes::kSums);
      row = Bytes::dot(row, values(in + k * read.step), each);
      if constexpr (kRows == 2) other = Bytes::dot(other, values(other_in + k * read.step), each);
    }
    row = Bytes::shift_right(row, read.bits);
    if constexpr (kRows == 2) other = Bytes::shift_right(other, read.bits);
  }

  // Of block b, the lanes of group g, from `place` on, which goes to the next group. What the loops read is read before them:
  // a number that is stored may be any of it, as far as the compiler knows.
  POLYPHASE_BLOCK bool add_group(const Taps& taps, int64_t b, int64_t g, int64_t lanes, Place& place) {
    const int32_t *const begins = taps.begin, *const index = taps.index;
    const int16_t* const weight = taps.quantised;
    const int64_t channels = channels_, furthest = max<int64_t>(0, taps.in_size - 2 * pairs_);
    int64_t start[kGroupLanes];
    int64_t low = INT64_MAX, high = 0;
    const Place first_place = place;
    for (int64_t l = 0; l < lanes; ++l, place.next()) {
      const int32_t begin = begins[place.x];
      const bool empty = begin == begins[place.x + 1];
      start[l] = min<int64_t>(empty ? 0 : index[begin], furthest);
      if (empty) continue;
      low = min(low, start[l] * channels + place.c);
      high = max(high, start[l] * channels + place.c);
    }
    if (low == INT64_MAX) return true;  // nothing but border: all weights are 0
    const int64_t length = windows_ * Bytes::kWindow;
    if (high - low + channels >= length) return false;
    const int64_t in_length = taps.in_size * channels;
    const int64_t needs = length + (pairs_ - 1) * 2 * channels;
    int64_t base = min(low, in_length - needs);
    if (base < 0 || high - base + channels >= length) {  // the row is too short to begin that early
      base = low;
      readable_length_ = max(readable_length_, low + needs);
    }
    blocks_[b].bases[g] = static_cast<int32_t>(base);

    int16_t* const weights = weights_ + 2 * (b * pairs_ * Bytes::kSums + g * kGroupLanes);
    uint8_t* const shuffle = shuffles_ + b * Bytes::kSize + g * kGroupLanes * 4;
    uint64_t* const from = has_many() ? from_ + b * windows_ : nullptr;  // then there is one group
    const auto put_byte = [&](int64_t to, int64_t byte) {
      shuffle[to] = static_cast<uint8_t>(byte);
      if (from != nullptr) from[byte / Bytes::kWindow] |= uint64_t{1} << to;
    };
    Place at = first_place;
    for (int64_t l = 0; l < lanes; ++l, at.next()) {
      const int32_t begin = begins[at.x], end = begins[at.x + 1];
      if (begin == end) continue;
      const int64_t first = start[l], byte = first * channels + at.c - base;
      put_byte(2 * Bytes::place(l, 0), byte);
      put_byte(2 * Bytes::place(l, 1), byte + channels);
      for (int32_t t = begin; t < end; ++t) {
        const auto k = static_cast<uint64_t>(index[t] - first);  // without a sign: halves are shifts
        weights[k / 2 * 2 * Bytes::kSums + Bytes::place(l, k % 2)] = weight[t];
      }
    }
    return true;
  }

  // The most shuffles (windows times pairs of taps) for a block with several windows. Beyond that, four rows at a time are
  // better, or a plane's dot products: ways that up to four channels have.
  int64_t most_shuffles() const {
    if (channels_ > 4) return INT64_MAX;
    return channels_ == 4 ? 8 : channels_ == 3 ? 12 : 10;
  }

  int64_t channels_ = 0;
  int64_t out_length_ = 0;
  int64_t readable_length_ = 0;
  int precision_ = 0;
  int windows_ = 1;
  int pairs_ = 0;  // of taps, for every block: where blocks differed, the processor would guess the loop's end wrong
  int64_t lanes_ = Bytes::kSums;
  uint8_t order_[Bytes::kSize] = {};  // in which four blocks are packed
  int64_t block_count_ = 0;      // four are stored at once: those beyond the end read as the last one, and weigh 0
  Buffer<uint8_t> memory_;       // of all that follows
  int16_t* weights_ = nullptr;   // pairs * 2 * kSums for a block
  uint8_t* shuffles_ = nullptr;  // kSize for a block
  uint64_t* from_ = nullptr;     // of many windows, as many for a block: the bytes that lie in each
  Block* blocks_ = nullptr;
};

#else

struct ByteWindows {
  static constexpr int kRows = 1;
  bool build(const Taps&, int64_t, int) { return false; }
  bool has_many() const { return false; }
  int64_t readable_length() const { return 0; }
  size_t bytes() const { return 0; }
  void run(const uint8_t* const*, uint8_t* const*, const Ahead*) const {}
};

#endif

#else

POLYPHASE_ROW_LOOP inline void vertical(const uint8_t* const* rows, const int32_t* pairs, int taps, int precision, uint8_t* out,
                     int64_t length) {
  vertical_plain(rows, pairs, taps, precision, out, length);
}

#endif

// The horizontal pass over a row of `channels` interleaved values per pixel.
class ByteLanes {
 public:
  ByteLanes(const Taps& taps, int64_t channels, int64_t) : channels_(channels), precision_(taps.precision) {
#if defined(POLYPHASE_BYTE_VECTORS)
    const bool by_fours = FourRows::takes(channels);
    const bool picks = channels < Bytes::kSize / 2 && !(by_fours && widest_of(taps, 0, taps.out_size - 1) > FourRows::kMostPicked);
    for (int windows = 1; picks && windows <= Bytes::kMostWindows; ++windows) {
      if (windows_.build(taps, channels, windows)) {
        way_ = kWindows;
        return;
      }
    }
    if (by_fours && !ByteDots::suit_long_rows(taps, channels)) {
      way_ = kFourRows;
      four_rows_.build(taps, channels);
      return;
    }
    if (channels <= ByteDots::kMostChannels) {
      way_ = kDots;
      dots_.build(taps, channels);
      return;
    }
#endif
    begin_.assign(taps.begin, taps.out_size + 1);
    index_.assign(taps.index, taps.begin[taps.out_size]);
    weights_.assign(taps.quantised, taps.begin[taps.out_size]);
  }

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
      run_windows(in[r], in[last], out[r], out[last], nullptr);
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
        for (int32_t t = begin_[x]; t < begin_[x + 1]; ++t) sum += in[index_[t] * channels_ + c] * weights_[t];
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
  int64_t channels_;
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
