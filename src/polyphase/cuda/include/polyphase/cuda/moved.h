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
// stored; rows of a plane are counted in 32 bits. Where an element comes from in the source's row follows from its number
// (kComputed: from call.row_origin on, by strides; rows likewise), or call.offsets says it, and y's table; -n for border n.
// kRuns: where a thread's elements, of 4 bytes at most, lie side by side in the source, forwards or backwards, they are read
// by words.
template <class Load, class Store, int kColumns, bool kTogether, bool kComputed, bool kRuns, int kRows, bool kBordered,
          int kThreads>
struct Moved {
  using From = typename Load::From;
  using To = typename Store::To;
  using Elements = Vector<From, kColumns>;
  // What is read by words is kept in words.
  static constexpr int kSize = sizeof(From), kWords = kRuns ? kColumns * kSize / 4 : 1;
  using Read = typename Chosen<kRuns, Vector<uint32_t, kWords>, Elements>::Type;

  // Threads of a block own groups of columns, a power of two of them in each of several strips: no number is divided by
  // another that only the call knows, which takes a small image's time.
  static void run(const MapsCall& call, const Block& block) {
    const auto groups = static_cast<int32_t>((call.x.out_size * call.channels + kColumns - 1) / kColumns);
    const int power = static_cast<int>(call.tile), across = 1 << power, together = kThreads >> power;
    each_part(block, ((call.strips << power) + kThreads - 1) / kThreads, call.planes, [&](int64_t band, int64_t plane) {
      const Place place = plane_place(call, plane);
      block.each_thread([&](int thread) {
        const int32_t group = block.place().x * across + (thread & (across - 1));
        const int32_t y = (static_cast<int32_t>(band) * together + (thread >> power)) * static_cast<int32_t>(call.strip);
        if (group < groups && y < static_cast<int32_t>(call.y.out_size)) walk(call, place, group * kColumns, y);
      });
    });
  }

 private:
  static void walk(const MapsCall& call, const Place& plane, int32_t element, int32_t y) {
    const auto length = static_cast<int32_t>(call.x.out_size * call.channels);
    const int owned = kTogether || length - element >= kColumns ? kColumns : length - element;
    const auto height = static_cast<int32_t>(call.y.out_size), strip = static_cast<int32_t>(call.strip);
    const int32_t stop = height - y > strip ? y + strip : height;
    Place place = row_place(call, plane, y);
    const Group run = kRuns ? run_at(call, length, element) : Group{0, kScattered};
    int32_t offsets[kColumns] = {};
    if (!kRuns || (!kComputed && run.direction == kScattered)) find(call, element, owned, offsets);
    const From* const source = static_cast<const From*>(call.source) + place.source;
    const From* next = source + y * call.y.in_stride;
    To* target = static_cast<To*>(call.target) + place.target;
#pragma unroll 1
    for (int32_t row = y; row < stop; row += kRows) {
      Read read[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        // Where rows come from a table, none waits for whether the one before is there.
        const int32_t in_strip = row + r < stop ? row + r : stop - 1;
        const From* const from = kComputed ? next : source + index_at(call.y, in_strip) * call.y.in_stride;
        if (!kComputed || row + r < stop) fetch(call, from, offsets, run, read[r]);
        next += call.y.in_stride;
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (row + r < stop) {
          store(call, place, target, row + r, element, owned, offsets, in_order(run, read[r]));
          target += call.y.out_stride;
          for (int t = 0; t < kTensors; ++t) place.tensors[t] += call.tensor_strides[t].y;
        }
      }
    }
  }

  static Group run_at(const MapsCall& call, int32_t length, int32_t element) {
    if constexpr (kComputed) {  // the row is one run
      const int32_t first = static_cast<int32_t>(call.row_origin);
      if (call.x.in_stride > 0) return {first + element, kForwards};
      return {first - element - (kColumns - 1), kBackwards};
    }
    const int32_t packed = call.offsets[length + element / kColumns];
    return {packed >> 2, static_cast<Direction>(packed & 3)};
  }

  // Of an element that is not there, what stands for it is the last.
  static void find(const MapsCall& call, int32_t element, int owned, int32_t (&offsets)[kColumns]) {
    const auto channels = static_cast<int32_t>(call.channels), step = static_cast<int32_t>(call.x.in_stride);
    const auto within = static_cast<int32_t>(call.in_channel_stride);
    Column at = kComputed ? column_at(call, element) : Column{0, 0};
#pragma unroll
    for (int a = 0; a < kColumns; ++a) {
      if constexpr (kComputed) {
        offsets[a] = a < owned ? static_cast<int32_t>(call.row_origin) + at.x * step + at.c * within : offsets[a > 0 ? a - 1 : 0];
        if (++at.c == channels) at = {at.x + 1, 0};
      } else {
        offsets[a] = call.offsets[element + (a < owned ? a : owned - 1)];
      }
    }
  }

  static void fetch(const MapsCall& call, const From* source, const int32_t (&offsets)[kColumns], Group run, Read& read) {
    if constexpr (kRuns) {
      if (kComputed || run.direction != kScattered) {
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

  static void fetch_run(const MapsCall& call, const From* source, Group run, Read& words) {
    const From* begin = source + run.lowest;
    const int shift = static_cast<int>(reinterpret_cast<uintptr_t>(begin) & 3), at = run.lowest * kSize;  // in bytes
    if ((reinterpret_cast<uintptr_t>(begin) & (kColumns * kSize - 1)) == 0) {
      words = *reinterpret_cast<const Read*>(begin);
    } else if (kSize == 4) {
#pragma unroll
      for (int i = 0; i < kWords; ++i) words.items[i] = reinterpret_cast<const uint32_t*>(begin)[i];
    } else if (at >= shift && at - shift + 4 * (kWords + 1) <= call.span * kSize) {
      const auto* aligned = reinterpret_cast<const uint32_t*>(reinterpret_cast<const uint8_t*>(begin) - shift);
#pragma unroll
      for (int i = 0; i < kWords; ++i) words.items[i] = from_byte(aligned[i], aligned[i + 1], 8 * shift);
    } else {
      words = byte_by_byte(reinterpret_cast<const uint8_t*>(begin));
    }
  }

  // What was read, in the order of the target; not where it is read, for it would have to be there at once.
  static Read in_order(Group run, const Read& read) {
    if constexpr (kRuns) {
      Read ordered = read;
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        if (run.direction == kBackwards) ordered.items[i] = turned(read.items[kWords - 1 - i]);
      }
      return ordered;
    }
    return read;
  }

  // The elements of a word, the other way round.
  static uint32_t turned(uint32_t word) {
    if (kSize == 4) return word;
    if (kSize == 2) return word << 16 | word >> 16;
    return word << 24 | (word & 0xff00) << 8 | (word >> 8 & 0xff00) | word >> 24;
  }

  // Where a word would reach over the edge of the row.
  static POLYPHASE_SELDOM Read byte_by_byte(const uint8_t* begin) {
    Read words{};
    for (int i = 0; i < 4 * kWords; ++i) words.items[i / 4] |= uint32_t(begin[i]) << (8 * (i % 4));
    return words;
  }

  static void store(const MapsCall& call, const Place& place, To* target, int64_t y, int32_t element, int owned,
                    const int32_t (&offsets)[kColumns], const Read& read) {
    const int32_t of_row = kBordered ? greater(place.border, border_at(call.y, y)) : 0;
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
