// Maps along which values only move: a thread owns neighbouring outputs of a row, knows where each comes from, and walks
// down a strip of rows.
#pragma once

#include "polyphase/cuda/block.h"
#include "polyphase/cuda/places.h"
#include "polyphase/cuda/vectors.h"

namespace polyphase {

// How a group of elements lies in the source, as `launch.py` packs it behind the offsets: its lowest offset times 4, and
// one of these.
enum Direction { kScattered, kForwards, kBackwards };

struct Group {
  int32_t lowest;
  Direction direction;
};

// kColumns: elements that a thread owns. kTogether: they are stored at once. kRows: rows that are read before any is
// stored. call.offsets has, for every element of a row, its place in the source's row; -n for border n. kRuns: elements
// are bytes, and where a thread's lie side by side in the source, forwards or backwards, they are read by words.
template <class Load, class Store, int kColumns, bool kTogether, bool kRuns, int kRows, bool kBordered, int kThreads>
struct Moved {
  using From = typename Load::From;
  using To = typename Store::To;
  using Elements = Vector<From, kColumns>;
  // What is read by words is kept in words.
  using Read = typename Chosen<kRuns, Vector<uint32_t, kRuns ? kColumns / 4 : 1>, Elements>::Type;

  // Threads of a block own `across` groups of columns in each of several strips.
  static void run(const MapsCall& call, const Block& block) {
    const int64_t groups = (call.x.out_size * call.channels + kColumns - 1) / kColumns;
    const int across = static_cast<int>(call.tile), together = kThreads / across;
    each_part(block, (call.strips + together - 1) / together, call.planes, [&](int64_t band, int64_t plane) {
      const Place place = plane_place(call, plane);
      block.each_thread([&](int thread) {
        const int below = thread / across;
        const int64_t group = int64_t(block.place().x) * across + (thread - below * across);
        const int64_t strip = band * together + below;
        if (below < together && group < groups && strip < call.strips) {
          walk(call, place, static_cast<int32_t>(group * kColumns), strip * call.strip);
        }
      });
    });
  }

 private:
  static void walk(const MapsCall& call, const Place& plane, int32_t element, int64_t y) {
    const auto length = static_cast<int32_t>(call.x.out_size * call.channels);
    const int owned = kTogether || length - element >= kColumns ? kColumns : length - element;
    const int64_t stop = y + call.strip < call.y.out_size ? y + call.strip : call.y.out_size;
    Place place = row_place(call, plane, y);
    const int32_t packed = kRuns ? call.offsets[length + element / kColumns] : int32_t(kScattered);
    const Group run = {packed >> 2, static_cast<Direction>(packed & 3)};
    int32_t offsets[kColumns] = {};
    if (!kRuns || run.direction == kScattered) {
#pragma unroll
      for (int a = 0; a < kColumns; ++a) offsets[a] = call.offsets[element + (a < owned ? a : owned - 1)];
    }
    for (int64_t row = y; row < stop; row += kRows) {
      Read read[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int64_t in_strip = row + r < stop ? row + r : stop - 1;
        fetch(call, place.source + index_at(call.y, in_strip) * call.y.in_stride, offsets, run, read[r]);
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (row + r < stop) {
          store(call, place, row + r, element, owned, offsets, read[r]);
          place.target += call.y.out_stride;
          for (int t = 0; t < kTensors; ++t) place.tensors[t] += call.tensor_strides[t].y;
        }
      }
    }
  }

  static void fetch(const MapsCall& call, int64_t row, const int32_t (&offsets)[kColumns], Group run, Read& read) {
    const From* source = static_cast<const From*>(call.source) + row;
    if constexpr (kRuns) {
      if (run.direction != kScattered) {
        fetch_run(call, source, run, read);
        return;
      }
    }
    Elements elements{};
#pragma unroll
    for (int a = 0; a < kColumns; ++a) {
      if (offsets[a] >= 0 || !kBordered) elements.items[a] = source[offsets[a]];
    }
    read = __builtin_bit_cast(Read, elements);
  }

  static void fetch_run(const MapsCall& call, const From* source, Group run, Read& read) {
    constexpr int kWords = kColumns / 4;
    const From* begin = source + run.lowest;
    const int shift = static_cast<int>(reinterpret_cast<uintptr_t>(begin) & 3);
    Read words;
    if ((reinterpret_cast<uintptr_t>(begin) & (kColumns - 1)) == 0) {
      words = *reinterpret_cast<const Read*>(begin);
    } else if (run.lowest >= shift && run.lowest - shift + 4 * (kWords + 1) <= call.span) {
      const auto* aligned = reinterpret_cast<const uint32_t*>(begin - shift);
#pragma unroll
      for (int i = 0; i < kWords; ++i) words.items[i] = from_byte(aligned[i], aligned[i + 1], 8 * shift);
    } else {
      words = byte_by_byte(begin);
    }
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const uint32_t word = words.items[kWords - 1 - i];
      const uint32_t turned = word << 24 | (word & 0xff00) << 8 | (word >> 8 & 0xff00) | word >> 24;
      read.items[i] = run.direction == kForwards ? words.items[i] : turned;
    }
  }

  // Where a word would reach over the edge of the row.
  static POLYPHASE_SELDOM Read byte_by_byte(const From* begin) {
    Read words{};
    for (int i = 0; i < kColumns; ++i) words.items[i / 4] |= uint32_t(begin[i]) << (8 * (i % 4));
    return words;
  }

  static void store(const MapsCall& call, const Place& place, int64_t y, int32_t element, int owned,
                    const int32_t (&offsets)[kColumns], const Read& read) {
    const int32_t of_row = kBordered ? greater(place.border, border_at(call.y, y)) : 0;
    To* target = static_cast<To*>(call.target) + place.target;
    if constexpr (kTogether && !kBordered && Load::kIsIdentity && Store::kIsIdentity) {
      *reinterpret_cast<Read*>(target + element) = read;
      return;
    }
    const Elements elements = __builtin_bit_cast(Elements, read);
    Vector<To, kColumns> out;
#pragma unroll
    for (int a = 0; a < kColumns; ++a) {
      const Column at = needs_columns() || !kTogether ? column_at(call, element + a) : Column{0, 0};
      const int32_t border = kBordered ? greater(of_row, offsets[a] < 0 ? -offsets[a] : 0) : 0;
      typename Load::To value{};
      if (border == 0) value = Load::apply(elements.items[a], call, channel_of(call, place.channel, at.c));
      if (a < owned) out.items[a] = finished<Store, kBordered>(call, place, at.x, at.c, border, value);
      if (!kTogether && a < owned) target[at.x * call.x.out_stride + at.c * call.out_channel_stride] = out.items[a];
    }
    if (kTogether) *reinterpret_cast<Vector<To, kColumns>*>(target + element) = out;
  }

  static constexpr bool needs_columns() { return Load::kReadsChannel || Store::kReadsChannel || kTensors > 0; }
};

}  // namespace polyphase
