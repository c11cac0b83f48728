// The pixels of a thread that goes down a strip of bytes: windows of few taps along x, summed by pairs of weights and
// rounded; the latest are kept as bytes, which output rows are sums of.
#pragma once

#include "polyphase/cuda/byte_pairs.h"

namespace polyphase {

// kChannels: of a pixel, side by side, as pixels are. kPixels: that a thread owns. kStores: of `Stores`, how their outputs lie.
template <class Store, int kX, int kY, int kChannels, int kPixels, int kStores, bool kBordered>
struct ByteColumns {
  static constexpr int kBytes = kX * kChannels;         // of a window
  static constexpr int kWords = (kBytes + 3) / 4;       // from its first byte on
  static constexpr int kRead = (kBytes + 3 + 3) / 4;    // wherever it begins in a word
  static constexpr int kColumns = kPixels * kChannels;  // elements that a thread owns
  using To = typename Store::To;
  using Kept = ByteColumn<kY>;
  using Row = typename Kept::Row;
  using Outputs = ByteOutputs<Store, kChannels>;

  struct Window {
    uint32_t words[kRead];
  };

  Place place;
  To* target;
  int x, owned;        // the first pixel, and how many are inside the row
  int first[kPixels];  // bytes of windows, counted from `origin` on
  uint32_t pairs[kPixels][kChannels][2 * kWords];
  Kept kept[kColumns];
  int have, next;  // the input row that comes next, and the output row that waits for it,
  Row row;         // which is this one
  int bits[2], half[2];  // of sums along x and along y: by how many they are shifted, and what rounds them

  // left: pixels from the first one on. top: the first input row. origin: a byte of rows.
  void begin(const MapsCall& call, const Place& of_row, int pixel, int left, int top, int origin) {
    place = of_row;
    x = pixel;
    owned = (kStores == kAtOnce && left > 0) || left > kPixels ? kPixels : left;
    have = top;
    next = 0;
    bits[0] = static_cast<int>(call.x.precision);
    bits[1] = static_cast<int>(call.y.precision);
    half[0] = held(ByteSum::start(bits[0]));
    half[1] = held(ByteSum::start(bits[1]));
    if (owned <= 0) return;
    target = static_cast<To*>(call.target) + place.target + x * (kStores == kApart ? call.x.out_stride : kChannels);
#pragma unroll
    for (int p = 0; p < kPixels; ++p) {
      const int column = x + (p < owned ? p : owned - 1);
      first[p] = call.x.first[column] * kChannels - origin;
      weigh(pairs[p], static_cast<const int32_t*>(call.x.weight) + int64_t(column) * kX);
    }
#pragma unroll
    for (int a = 0; a < kColumns; ++a) kept[a] = {};
  }

  // Pixel p of the next row. shift: bits of a word before its window, which count modulo 32.
  void push(int p, const Window& window, uint32_t shift) {
    uint32_t bytes[kWords];
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      bytes[w] = from_byte(window.words[w], w + 1 < kRead ? window.words[w + 1] : 0, shift);
    }
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      int32_t sum = half[0];
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        if (reads(4 * w, c) || reads(4 * w + 1, c)) sum = add_pair<false>(sum, pairs[p][c][2 * w], bytes[w]);
        if (reads(4 * w + 2, c) || reads(4 * w + 3, c)) sum = add_pair<true>(sum, pairs[p][c][2 * w + 1], bytes[w]);
      }
      kept[p * kChannels + c].push(ByteSum::rounded(sum, bits[0]));
    }
  }

  // Whether an output row waited for the row that is there now: then it is to be made, and asked again. That loop is the
  // caller's, who returns out of it: a loop in here would have to hand out a flag, which is asked again for every row.
  bool waits() const { return row.until == have; }

  // Whether that was the last of `count`, whose rows are followed by one that is read but not used.
  bool make(const MapsCall& call, const Row* rows, int count, const To* outputs) {
    const Row now = row;
    row = rows[++next];
    store(call, now, outputs);
    if (next == count) return true;
    place.target += call.y.out_stride;
    target += call.y.out_stride;
    for (int t = 0; t < kTensors; ++t) place.tensors[t] += call.tensor_strides[t].y;
    return false;
  }

 private:
  // Byte n of a window belongs to channel n % kChannels of tap n / kChannels.
  static void weigh(uint32_t (&pairs)[kChannels][2 * kWords], const int32_t* weight) {
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
#pragma unroll
      for (int pair = 0; pair < 2 * kWords; ++pair) {
        pairs[c][pair] = pair_of(reads(2 * pair, c) ? weight[2 * pair / kChannels] : 0,
                                 reads(2 * pair + 1, c) ? weight[(2 * pair + 1) / kChannels] : 0);
      }
    }
  }
  static constexpr bool reads(int byte, int c) { return byte < kBytes && byte % kChannels == c; }

  void store(const MapsCall& call, const Row& of_row, const To* outputs) {
    Vector<To, kColumns> out;
    To* const to = global(target);
    const int64_t of_pixel = call.x.out_stride, of_channel = call.out_channel_stride;
#pragma unroll
    for (int a = 0; a < kColumns; ++a) {
      const int p = a / kChannels, c = a % kChannels;
      const int32_t sum = ByteSum::rounded(kept[a].sum(of_row, half[1]), bits[1]);
      if (kPixels == 1 || p < owned) {
        out.items[a] = Outputs::template at<kBordered>(outputs, call, place, {x + p, c}, of_row.border, sum);
        if (kStores != kAtOnce) to[kStores == kApart ? p * of_pixel + c * of_channel : a] = out.items[a];
      }
    }
    if (kStores == kAtOnce) *reinterpret_cast<Vector<To, kColumns>*>(to) = out;
  }
};

// The word from byte `at` of a row on, of which only those bytes are read that the row has; 0 for others. What the caller holds
// across the call takes registers of all its threads: numbers, and one pointer.
POLYPHASE_SELDOM uint32_t word_within(const uint8_t* row, int at, int length) {
  uint32_t word = 0;
  for (int i = 0; i < 4; ++i) {
    if (at + i >= 0 && at + i < length) word |= uint32_t(row[at + i]) << (8 * i);
  }
  return word;
}

}  // namespace polyphase
