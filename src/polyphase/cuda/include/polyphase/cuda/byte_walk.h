// Bytes through windows of few taps: a thread owns neighbouring pixels and walks down a strip of rows. Of each input row it
// reads the words that its windows lie in, some rows ahead; a window is summed by pairs of weights, rounded, and kept as
// a byte. An output row is a sum over the bytes kept.
#pragma once

#include "polyphase/cuda/block.h"
#include "polyphase/cuda/byte_pairs.h"

namespace polyphase {

// kChannels: of a pixel, side by side, as pixels are. kPixels: that a thread owns. kAligned: rows begin at multiples of 4
// bytes and are such multiples long. kStores: of `Stores`, how a thread's outputs lie. kAhead: rows that are fetched ahead.
// kStrip: rows that a block makes. Rows of y's table begin at inputs that do not descend.
template <class Load, class Store, int kX, int kY, int kChannels, int kPixels, bool kAligned, int kStores, int kAhead,
          bool kBordered, int kStrip, int kThreads>
struct ByteWalk {
  static_assert(Load::kIsIdentity, "bytes are summed as they lie in memory");
  static constexpr int kBytes = kX * kChannels;         // of a window
  static constexpr int kWords = (kBytes + 3) / 4;       // from its first byte on
  static constexpr int kRead = (kBytes + 3 + 3) / 4;    // wherever it begins in a word
  static constexpr int kColumns = kPixels * kChannels;  // elements that a thread owns
  using To = typename Store::To;
  using Kept = ByteColumn<kY>;
  using Row = typename Kept::Row;
  using Outputs = ByteOutputs<Store, kChannels>;

  static void run(const MapsCall& call, const Block& block) {
    Row* const staged = reinterpret_cast<Row*>(block.shared());  // kStrip, and one that is read but not used
    To* const outputs = reinterpret_cast<To*>(staged + kStrip + 1);
    const auto pixels = static_cast<int32_t>(call.x.out_size);
    each_part(block, call.strips, call.planes, [&](int64_t strip, int64_t plane) {
      const int64_t y = strip * kStrip;
      const int rows = static_cast<int>(call.y.out_size - y < kStrip ? call.y.out_size - y : kStrip);
      const Place place = row_place(call, plane_place(call, plane), y);
      block.each_thread([&](int thread) {
        stage_rows<kY, kBordered, kThreads, int32_t>(call, staged, y, rows, thread, Kept::weigh);
        Outputs::fill(call, place, outputs, thread, kThreads);
      });
      block.each_thread([&](int thread) {
        const int32_t pixel = (block.place().x * kThreads + thread) * kPixels;
        if (pixel >= pixels) return;
        const int top = staged[0].until - kY, below = staged[rows - 1].until + kAhead;
        if (top > 0 && below < call.y.in_size) {
          Walk<false>(call, staged, outputs, place, pixel, pixels - pixel).down(rows);
        } else {
          Walk<true>(call, staged, outputs, place, pixel, pixels - pixel).down(rows);
        }
      });
    });
  }

 private:
  struct Window {
    uint32_t words[kRead];
  };

  // A word of which a row has only some bytes, or none.
  static POLYPHASE_SELDOM uint32_t edge_word(const uint8_t* row, int at, int length) {
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) {
      if (at + i >= 0 && at + i < length) word |= uint32_t(row[at + i]) << (8 * i);
    }
    return word;
  }

  // A thread's way down a strip. The words of a window may hold up to 3 bytes before its row or behind it: those of other
  // rows, but for the first row and the last. kAtEdge: those may be read, so only what is in a row is.
  template <bool kAtEdge>
  struct Walk {
    const MapsCall& call;
    const Row* staged;
    const To* outputs;
    Place place;
    int x, owned;  // the first pixel, and how many are inside the row
    const uint8_t* base;     // at a multiple of 4, and where every row's windows begin behind it, of the row that is fetched
    uint32_t at[kPixels];    // next: in 32 bits. Integers are what takes the time
    uint32_t shift[kPixels];  // of the row that is pushed next: bits before a window, which count modulo 32
    uint32_t step;           // from row to row
    To* target;
    int length;                              // of an input row, in bytes
    int first[kPixels];                      // bytes of windows
    uint32_t pairs[kPixels][kChannels][2 * kWords];
    Window next[kAhead][kPixels];
    Kept kept[kColumns];
    int left;  // rows from the one that is fetched next to the last
    int bits, half;  // of sums along x

    Walk(const MapsCall& of, const Row* rows, const To* looked_up, const Place& row, int pixel, int count)
        : call(of),
          staged(rows),
          outputs(looked_up),
          place(row),
          x(pixel),
          owned(kStores == kAtOnce || count > kPixels ? kPixels : count) {
      const int top = staged[0].until - kY;
      const uint8_t* const source = static_cast<const uint8_t*>(call.source) + place.source + int64_t(top) * call.y.in_stride;
      const auto before = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(source) & 3);
      base = source - before;
      step = static_cast<uint32_t>(call.y.in_stride);
      bits = static_cast<int>(call.x.precision);
      half = ByteSum::start(bits);
      target = static_cast<To*>(call.target) + place.target + x * (kStores == kApart ? call.x.out_stride : kChannels);
      length = static_cast<int>(call.x.in_size) * kChannels;
      left = static_cast<int>(call.y.in_size) - top;
#pragma unroll
      for (int p = 0; p < kPixels; ++p) {
        const int column = x + (p < owned ? p : owned - 1);
        first[p] = call.x.first[column] * kChannels;
        at[p] = before + first[p];
        shift[p] = 8 * at[p];
        weigh(pairs[p], static_cast<const int32_t*>(call.x.weight) + int64_t(column) * kX);
      }
#pragma unroll
      for (int a = 0; a < kColumns; ++a) kept[a] = {};
    }

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

    void down(int rows) {
#pragma unroll
      for (int slot = 0; slot < kAhead; ++slot) fetch(slot);
      Row row = staged[0];
      int have = row.until - kY, i = 0;
      while (true) {
#pragma unroll
        for (int slot = 0; slot < kAhead; ++slot) {
          push(slot);
          fetch(slot);
          ++have;
#pragma unroll 1
          while (row.until == have) {
            const Row now = row;
            row = staged[++i];
            store(now);
            if (i == rows) return;
            place.target += call.y.out_stride;
            target += call.y.out_stride;
            for (int t = 0; t < kTensors; ++t) place.tensors[t] += call.tensor_strides[t].y;
          }
        }
      }
    }

    void fetch(int slot) {
      if (left > 0) {
#pragma unroll
        for (int p = 0; p < kPixels; ++p) {
          const int lead = kAligned ? first[p] & 3 : at[p] & 3, begin = first[p] - lead;
          uint32_t(&words)[kRead] = next[slot][p].words;
          if (!kAtEdge || (begin >= 0 && begin + 4 * kRead <= length)) {
            const auto* const from = reinterpret_cast<const uint32_t*>(base + (at[p] - lead));
#pragma unroll
            for (int w = 0; w < kRead; ++w) words[w] = from[w];
          } else {
#pragma unroll
            for (int w = 0; w < kRead; ++w) words[w] = edge_word(base + (at[p] - first[p]), begin + 4 * w, length);
          }
        }
      }
#pragma unroll
      for (int p = 0; p < kPixels; ++p) at[p] += step;
      --left;
    }

    // The row that was fetched kAhead rows ago.
    void push(int slot) {
#pragma unroll
      for (int p = 0; p < kPixels; ++p) {
        const uint32_t(&words)[kRead] = next[slot][p].words;
        uint32_t bytes[kWords];
#pragma unroll
        for (int w = 0; w < kWords; ++w) bytes[w] = from_byte(words[w], w + 1 < kRead ? words[w + 1] : 0, shift[p]);
        if (!kAligned) shift[p] += 8 * step;
#pragma unroll
        for (int c = 0; c < kChannels; ++c) {
          int32_t sum = half;
#pragma unroll
          for (int w = 0; w < kWords; ++w) {
            if (reads(4 * w, c) || reads(4 * w + 1, c)) sum = add_pair<false>(sum, pairs[p][c][2 * w], bytes[w]);
            if (reads(4 * w + 2, c) || reads(4 * w + 3, c)) sum = add_pair<true>(sum, pairs[p][c][2 * w + 1], bytes[w]);
          }
          kept[p * kChannels + c].push(ByteSum::rounded(sum, bits));
        }
      }
    }

    void store(const Row& row) {
      Vector<To, kColumns> out;
      const int64_t of_pixel = call.x.out_stride, of_channel = call.out_channel_stride;
#pragma unroll
      for (int a = 0; a < kColumns; ++a) {
        const int p = a / kChannels, c = a % kChannels;
        const int32_t sum = kept[a].sum(row, call.y.precision);
        if (kPixels == 1 || p < owned) {
          out.items[a] = Outputs::template at<kBordered>(outputs, call, place, {x + p, c}, row.border, sum);
          if (kStores != kAtOnce) target[kStores == kApart ? p * of_pixel + c * of_channel : a] = out.items[a];
        }
      }
      if (kStores == kAtOnce) *reinterpret_cast<Vector<To, kColumns>*>(target) = out;
    }
  };
};

// The same for calls of kX and kY taps at most, of several sizes: those of few have a walk of their own.
template <class Load, class Store, int kX, int kY, int kChannels, int kPixels, bool kAligned, int kStores, int kAhead,
          bool kBordered, int kStrip, int kThreads>
struct ByteWalks {
  template <int kOwnX, int kOwnY>
  using Walk = ByteWalk<Load, Store, kOwnX, kOwnY, kChannels, kPixels, kAligned, kStores, kAhead, kBordered, kStrip, kThreads>;

  static void run(const MapsCall& call, const Block& block) {
    if (call.x.taps <= kFewTaps && call.y.taps <= kFewTaps) {
      Walk<kFewTaps, kFewTaps>::run(call, block);
    } else {
      Walk<kX, kY>::run(call, block);
    }
  }

 private:
  static constexpr int kFewTaps = 4;  // `FEW_TAPS` of ways.py
};

}  // namespace polyphase
