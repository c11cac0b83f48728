// The horizontal pass over bytes with few taps, close together: values are picked out of windows.
//
// What all lanes of a block read for a product lies in one window of the row (AVX2: in one for each half of a register;
// AVX-512 with VBMI: or in a few adjoining ones). A product takes a pair of taps, or four out of a few windows, and for the
// next one windows move on by as many pixels.
#pragma once

#include "polyphase/core/abi.h"
#include "polyphase/core/buffer.h"
#include "polyphase/core/standard.h"
#include "polyphase/core/unroll.h"
#include "polyphase/resample/ahead.h"
#include "polyphase/simd/bytes.h"

namespace polyphase {

#if defined(POLYPHASE_BYTE_SHUFFLES)

class ByteWindows {
 public:
  // False where lanes lie too far apart. `windows`: how many a block has. Where a block is whole pixels only, it has fewer
  // lanes, which lie closer together: RGB that shrinks by 4 to 4.8 then has one window.
  bool build(const Taps& taps, int64_t channels, int64_t pixel, int windows) {
    if (build(taps, channels, pixel, windows, Bytes::kSums)) return true;
    *this = ByteWindows();
    const int64_t whole = Bytes::kSums / channels * channels;
    if (whole < Bytes::kSums && whole >= Bytes::kLeastLanes && build(taps, channels, pixel, windows, whole)) return true;
    *this = ByteWindows();
    return false;
  }

  bool has_many() const { return windows_ > 1; }
  int64_t readable_length() const { return readable_length_; }
  size_t bytes() const { return memory_.bytes(); }

  // What comes after two rows, if it lies as they do: of many windows, whose rows are mostly long.
  Ahead after(const uint8_t* row, const uint8_t* next) const {
    return {next + (next - row), in_length_, next - row, has_many() ? kRows : 0};
  }

  // kRows rows: by the same tables, which are then loaded once for all of them.
  static constexpr int kRows = Bytes::kRowsAtOnce;
  void run(const uint8_t* const* in, uint8_t* const* out, const Ahead* ahead) const {
    const int64_t count = block_count_;
    if (!has_many()) {
      return with_constant<1, 4>(products_, [&](auto products) { run_blocks<Words, products, 1>(in, out, 0, count); });
    }
    if constexpr (Bytes::kMostWindows > 1) {
      constexpr int64_t kStep = 16;
      Fetching fetching(ahead, count / kStep + 1);
      for (int64_t b = 0; b < count; b += kStep) {
        fetching.step();
        with_constant<2, 2>(windows_, [&](auto windows) {
          if (far_) return run_blocks<FarProducts, 0, windows>(in, out, b, min(count, b + kStep));
          run_blocks<Words, 1, windows>(in, out, b, min(count, b + kStep));
        });
      }
    }
  }

 private:
  using Words = WordProducts<Bytes>;
#if defined(POLYPHASE_BYTE_PRODUCTS)
  using FarProducts = ByteProducts;  // of many taps, out of many windows
#else
  using FarProducts = Words;
#endif
  static constexpr int kGroupLanes = Bytes::kSums / Bytes::kGroups;
  struct Block {
    int32_t bases[Bytes::kGroups];
  };

  // Copies of what a row reads: a byte that is stored may alias members, so these would be read again after every store.
  struct Read {
    const Block* blocks;
    const uint8_t* shuffles;
    const uint64_t* from;
    const uint8_t* weights;
    int64_t step;  // from a product's taps to the next one's
    int windows, products;
    Bytes::Register half, bits, order;
  };

  bool build(const Taps& taps, int64_t channels, int64_t pixel, int windows, int64_t lanes) {
    channels_ = channels;
    pixel_ = pixel;
    windows_ = windows;
    lanes_ = lanes;
    in_length_ = taps.in_size * pixel;
    out_length_ = taps.out_size * channels;
    precision_ = taps.precision;
    Bytes::fill_order(lanes, order_);
    const int64_t count = (out_length_ + lanes_ - 1) / lanes_;
    if (!may_fit(taps, count / 2 * lanes_)) return false;
    const int64_t widest = widest_of(taps, 0, taps.out_size - 1);
    far_ = has_many() && widest > Words::kTaps;
    return far_ ? build_blocks<FarProducts>(taps, count, widest) : build_blocks<Words>(taps, count, widest);
  }

  template <class Products>
  bool build_blocks(const Taps& taps, int64_t count, int64_t widest) {
    products_ = static_cast<int>((widest + Products::kTaps - 1) / Products::kTaps);
    if (has_many() && windows_ * products_ > most_shuffles()) return false;
    block_count_ = (count + 3) / 4 * 4;
    allocate(Products::kWeightBytes);
    Place place(0, channels_);
    for (int64_t b = 0; b < count; ++b) {
      std::memset(shuffles_ + b * Bytes::kSize, Bytes::kNone, Bytes::kSize);
      const int64_t end = min((b + 1) * lanes_, out_length_);
      for (int64_t g = 0, from = b * lanes_; from < end; ++g, from += kGroupLanes) {
        if (!add_group<Products>(taps, b, g, min<int64_t>(kGroupLanes, end - from), place)) return false;
      }
    }
    for (int64_t b = count; b < block_count_; ++b) blocks_[b] = blocks_[count - 1];
    return true;
  }

  // All tables are one piece of memory, of zeros.
  void allocate(int64_t weight_bytes) {
    const int64_t weights = block_count_ * products_ * weight_bytes;
    const int64_t shuffles = block_count_ * Bytes::kSize;
    const int64_t from = has_many() ? block_count_ * windows_ * static_cast<int64_t>(sizeof(*from_)) : 0;
    memory_.resize(weights + shuffles + from + block_count_ * static_cast<int64_t>(sizeof(Block)));
    uint8_t* const memory = memory_.data();
    weights_ = memory;
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
    return max(apart, -apart) * pixel_ < windows_ * Bytes::kWindow;
  }

  // Blocks [from, to), four at a time.
  template <class Products, int kProducts, int kWindows>
  POLYPHASE_ROW_LOOP void run_blocks(const uint8_t* const* rows, uint8_t* const* outs, int64_t from, int64_t to) const {
    const Read read = {blocks_, shuffles_, from_, weights_, Products::kTaps * pixel_, windows_, products_,
                       Bytes::broadcast(1 << (precision_ - 1)), Bytes::broadcast(precision_), Bytes::load(order_)};
    const int64_t step = 4 * lanes_;
    const uint8_t *const in = rows[0], *const other_in = rows[kRows - 1];
    uint8_t *out = outs[0] + from * lanes_, *other_out = outs[kRows - 1] + from * lanes_;
    int64_t left = out_length_ - from * lanes_;
    for (int64_t b = from; b < to; b += 4, out += step, other_out += step, left -= step) {
      Bytes::Register sums[4], others[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) sum<Products, kProducts, kWindows>(read, b + j, in, other_in, sums[j], others[j]);
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
  template <class Products, int kProducts, int kWindows>
  POLYPHASE_BLOCK static void sum(const Read& read, int64_t b, const uint8_t* in, const uint8_t* other_in,
                                  Bytes::Register& row, Bytes::Register& other) {
    const Block& block = read.blocks[b];
    const int products = kProducts == 0 ? read.products : kProducts;
    [[maybe_unused]] const int windows = kWindows == 0 ? read.windows : kWindows;
    const Bytes::Register shuffle = Bytes::load(read.shuffles + b * Bytes::kSize);
    const uint8_t* weights = read.weights + b * products * Products::kWeightBytes;
    const auto values = [&](const uint8_t* from) {
      if constexpr (kWindows == 1) {
        return Products::pick(Bytes::windows(from, block.bases), shuffle);
      } else {
        return Products::pick(from + block.bases[0], windows, shuffle, read.from + b * windows);
      }
    };
    typename Products::Sums sums = Products::started(read.half), others = sums;
#pragma GCC unroll 4
    for (int k = 0; k < products; ++k) {
      const typename Products::Weights each = Products::load_weights(weights + k * Products::kWeightBytes);
      Products::add(sums, values(in + k * read.step), each);
      if constexpr (kRows == 2) Products::add(others, values(other_in + k * read.step), each);
    }
    row = Bytes::shift_right(Products::total(sums), read.bits);
    if constexpr (kRows == 2) other = Bytes::shift_right(Products::total(others), read.bits);
  }

  // Of block b, the lanes of group g, from `place` on, which goes to the next group. What the loops read is read before them:
  // a number that is stored may be any of it, as far as the compiler knows.
  template <class Products>
  POLYPHASE_BLOCK bool add_group(const Taps& taps, int64_t b, int64_t g, int64_t lanes, Place& place) {
    const int32_t *const begins = taps.begin, *const index = taps.index;
    const int16_t* const weight = taps.quantised;
    const int64_t pixel = pixel_, reach = (Products::kTaps - 1) * pixel;
    const int64_t furthest = max<int64_t>(0, taps.in_size - Products::kTaps * products_);
    int64_t start[kGroupLanes];
    int64_t low = INT64_MAX, high = 0;
    const Place first_place = place;
    for (int64_t l = 0; l < lanes; ++l, place.next()) {
      const int32_t begin = begins[place.x];
      const bool empty = begin == begins[place.x + 1];
      start[l] = min<int64_t>(empty ? 0 : index[begin], furthest);
      if (empty) continue;
      low = min(low, start[l] * pixel + place.c);
      high = max(high, start[l] * pixel + place.c);
    }
    if (low == INT64_MAX) return true;  // nothing but border: all weights are 0
    const int64_t length = windows_ * Bytes::kWindow;
    if (high - low + reach >= length) return false;
    const int64_t needs = length + (products_ - 1) * Products::kTaps * pixel;
    int64_t base = min(low, in_length_ - needs);
    if (base < 0 || high - base + reach >= length) {  // the row is too short to begin that early
      base = low;
      readable_length_ = max(readable_length_, low + needs);
    }
    blocks_[b].bases[g] = static_cast<int32_t>(base);

    uint8_t* const weights = weights_ + b * products_ * Products::kWeightBytes + g * kGroupLanes * 4;
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
      const int64_t first = start[l], byte = first * pixel + at.c - base;
      for (int64_t k = 0; k < Products::kTaps; ++k) put_byte(Products::byte_place(l, k), byte + k * pixel);
      for (int32_t t = begin; t < end; ++t) {
        const auto k = static_cast<uint64_t>(index[t] - first);  // without a sign: quotients are shifts
        Products::put_weight(weights + k / Products::kTaps * Products::kWeightBytes, l, k % Products::kTaps, weight[t]);
      }
    }
    return true;
  }

  // The most shuffles (windows times products) for a block with several windows. Beyond that four rows at a time are better,
  // which pixels of up to four channels have.
  int64_t most_shuffles() const {
    if (channels_ > 4) return INT64_MAX;
    return channels_ == 1 ? 18 : channels_ == 2 ? 10 : 4;
  }

  int64_t channels_ = 0, pixel_ = 0;
  int64_t in_length_ = 0, out_length_ = 0;
  int64_t readable_length_ = 0;
  int precision_ = 0;
  int windows_ = 1;
  bool far_ = false;  // products are FarProducts
  int products_ = 0;  // as many for every block: where blocks differed, the processor would guess the loop's end wrong
  int64_t lanes_ = Bytes::kSums;
  uint8_t order_[Bytes::kSize] = {};  // in which four blocks are packed
  int64_t block_count_ = 0;      // four are stored at once: those beyond the end read as the last one, and weigh 0
  Buffer<uint8_t> memory_;       // of all that follows
  uint8_t* weights_ = nullptr;   // for a block those of its products
  uint8_t* shuffles_ = nullptr;  // kSize for a block
  uint64_t* from_ = nullptr;     // of many windows, as many for a block: the bytes that lie in each
  Block* blocks_ = nullptr;
};

#else

struct ByteWindows {
  static constexpr int kRows = 1;
  bool build(const Taps&, int64_t, int64_t, int) { return false; }
  bool has_many() const { return false; }
  int64_t readable_length() const { return 0; }
  size_t bytes() const { return 0; }
  Ahead after(const uint8_t*, const uint8_t*) const { return {}; }
  void run(const uint8_t* const*, uint8_t* const*, const Ahead*) const {}
};

#endif

}  // namespace polyphase
