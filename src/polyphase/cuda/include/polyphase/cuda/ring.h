// Windows of few taps along y and x: a thread owns neighbouring columns and walks down a strip of rows. Each input row is
// summed along x once and kept in a ring of registers; an output row is a sum over that ring. The rows that come next
// are fetched before this one is used.
#pragma once

#include "polyphase/cuda/block.h"
#include "polyphase/cuda/rows.h"
#include "polyphase/cuda/sums.h"
#include "polyphase/cuda/vectors.h"

namespace polyphase {

// kColumns: elements of a row that a thread owns. kPixel: they are channels of one pixel, which share their taps and are
// read at once. kFirsts: -1, or the windows of a thread's columns lie in every thread alike, column a's from input number
// `kFirsts >> 4 * a & 15` on of those that the thread reads, each once; the first and the last kEdge of these may lie outside
// the image, where they have no weight; kTogether of the others are read at once. kStep: elements from one pixel of a row to
// the next, 0 where only the call knows. kStores: of `Stores`, how outputs lie. kAhead: rows that are fetched ahead, a divisor
// of kY or a multiple. kStrip: rows that a block makes. Rows of y's table begin at inputs that do not descend.
template <class Load, class Store, class Sum, int kX, int kY, int kColumns, bool kPixel, int64_t kFirsts, int kEdge,
          int kTogether, int kStep, int kStores, int kAhead, bool kBordered, int kStrip, int kThreads>
struct Ring {
  static constexpr int kWindows = kPixel ? 1 : kColumns;
  static constexpr bool kShared = kFirsts >= 0;
  static constexpr int first_of(int a) { return kShared ? static_cast<int>(kFirsts >> 4 * a & 15) : 0; }
  static constexpr int reads_of_a_row() {
    int last = 0;
    for (int a = 0; a < kColumns; ++a) last = first_of(a) > last ? first_of(a) : last;
    return last + kX;
  }
  static constexpr int kInner = kShared ? reads_of_a_row() - 2 * kEdge : 0;
  static_assert(kInner % kTogether == 0, "those that are read at once are always inside");
  static constexpr int kAround = kY > kAhead ? kY : kAhead;
  static_assert(kAround % kY == 0 && kAround % kAhead == 0, "what is fetched and what is kept have places in one loop");
  using From = typename Load::From;
  using To = typename Store::To;
  using Value = typename Sum::Value;
  using Weight = typename Sum::Weight;

  using Row = OutputRow<Weight, kY>;

  static void run(const MapsCall& call, const Block& block) {
    Row* const staged = reinterpret_cast<Row*>(block.shared());  // kStrip, and one that is read but not used
    const auto length = static_cast<int32_t>(call.x.out_size * call.channels);
    each_part(block, call.strips, call.planes, [&](int64_t strip, int64_t plane) {
      const int64_t y = strip * kStrip;
      const int rows = static_cast<int>(call.y.out_size - y < kStrip ? call.y.out_size - y : kStrip);
      const Place place = row_place(call, plane_place(call, plane), y);
      block.each_thread([&](int thread) {
        stage_rows<kY, kBordered, kThreads, Weight>(call, staged, y, rows, thread, [](Row& row, const Weight* weight) {
#pragma unroll
          for (int k = 0; k < kY; ++k) row.words[k] = weight[k];
        });
      });
      block.each_thread([&](int thread) {
        const int32_t element = (block.place().x * kThreads + thread) * kColumns;
        if (element < length) {
          const int owned = length - element < kColumns ? length - element : kColumns;
          const Value spoilt = Walk(call, staged, place, element, owned).down(rows);
          if (spoilt != 0) repair(call, staged, place, element, owned, y, rows);
        }
      });
    });
  }

 private:
  static To output(const MapsCall& call, const Place& row, Column at, int32_t of_row, Value sum) {
    int32_t border = 0;
    if (kBordered) border = greater(greater(row.border, of_row), border_at(call.x, at.x));
    return finished<Store, kBordered>(call, row, at.x, at.c, border, Sum::stored(sum));
  }

  // The outputs of a thread, one of which is spoilt, made again.
  static void repair(const MapsCall& call, const Row* staged, Place place, int32_t element, int owned,
                     int64_t y, int rows) {
#pragma unroll 1
    for (int i = 0; i < rows; ++i) {
#pragma unroll 1
      for (int a = 0; a < owned; ++a) {
        const Column at = column_at(call, element + a);
        const int64_t channel = channel_of(call, place.channel, at.c);
        const int64_t origin = place.source + at.c * call.in_channel_stride;
        const Value sum = whole_sum<Load, Sum>(call, origin, channel, 0, y + i, at.x);
        To* row = static_cast<To*>(call.target) + place.target;
        row[at.x * call.x.out_stride + at.c * call.out_channel_stride] = output(call, place, at, staged[i].border, sum);
      }
      place.target += call.y.out_stride;
      for (int t = 0; t < kTensors; ++t) place.tensors[t] += call.tensor_strides[t].y;
    }
  }

  // What a thread reads of a row: for tap k, column a's.
  struct Inputs {
    Kept<From, kPixel ? kColumns : 1> taps[kShared ? 1 : kX][kShared ? 1 : kWindows];
    Kept<From, kTogether> inner[kInner > 0 ? kInner / kTogether : 1];
    From edges[kEdge > 0 ? 2 * kEdge : 1];

    From at(int a, int k) const {
      if constexpr (!kShared) return taps[k][a % kWindows][kPixel ? a : 0];
      const int i = first_of(a) + k - kEdge;
      if (i < 0) return edges[i + kEdge];
      return i < kInner ? inner[i / kTogether][i % kTogether] : edges[i - kInner + kEdge];
    }
  };

  // A thread's way down a strip.
  struct Walk {
    const MapsCall& call;
    const Row* staged;
    Place place;
    int owned;  // columns inside the row
    Column columns[kColumns];
    const From* source;
    To* target;
    int offsets[kShared ? 1 + 2 * kEdge : kWindows];  // or of what is always inside, and of the edges
    Weight weight[kWindows][kX];
    Inputs next[kAhead];  // of rows that come next
    Value ring[kColumns][kY];                 // the latest rows, summed along x
    int left;                                 // rows from the one that is fetched next to the last
    Value spoilt = 0;

    Walk(const MapsCall& of, const Row* rows, const Place& row, int32_t element, int count)
        : call(of), staged(rows), place(row), owned(kStores == kAtOnce ? kColumns : count) {
      const int first = staged[0].until - kY;
      source = static_cast<const From*>(call.source) + place.source + int64_t(first) * call.y.in_stride;
      target = static_cast<To*>(call.target) + place.target + (kStores == kApart ? 0 : element);
#pragma unroll
      for (int a = 0; a < kColumns; ++a) columns[a] = column_at(call, element + (a < owned ? a : owned - 1));
      const int step = kStep > 0 ? kStep : static_cast<int>(call.x.in_stride);
      if constexpr (kShared) {
        const int begin = call.x.first[columns[0].x] - first_of(0) + kEdge, last = static_cast<int>(call.x.in_size) - 1;
        offsets[0] = begin * step;
#pragma unroll
        for (int i = 0; i < kEdge; ++i) {
          const int before = begin - kEdge + i, after = begin + kInner + i;
          offsets[1 + i] = (before < 0 ? 0 : before) * step;
          offsets[1 + kEdge + i] = (after > last ? last : after) * step;
        }
      }
#pragma unroll
      for (int a = 0; a < kWindows; ++a) {
        if constexpr (!kShared) {
          offsets[a] = call.x.first[columns[a].x] * step + columns[a].c * static_cast<int>(call.in_channel_stride);
        }
#pragma unroll
        for (int k = 0; k < kX; ++k) {
          weight[a][k] = static_cast<const Weight*>(call.x.weight)[columns[a].x * kX + k];
        }
      }
      left = static_cast<int>(call.y.in_size) - first;
    }

    // What shows whether an output is spoilt. The row that was read last lies in slot p of the ring, the one before it in
    // the slot before: what is where is known to the compiler.
    Value down(int rows) {
#pragma unroll
      for (int p = 0; p < kAhead; ++p) fetch(p);
      Row row = staged[0];
      int have = row.until - kY, i = 0;
      while (true) {
#pragma unroll
        for (int p = 0; p < kAround; ++p) {
          push(p);
          fetch(p % kAhead);
          ++have;
#pragma unroll 1
          while (row.until == have) {
            const Row now = row;
            row = staged[++i];
            store(now, p);
            target += call.y.out_stride;
            for (int t = 0; t < kTensors; ++t) place.tensors[t] += call.tensor_strides[t].y;
            if (i == rows) return spoilt;
          }
        }
      }
    }

    void fetch(int slot) {
      const int step = kStep > 0 ? kStep : static_cast<int>(call.x.in_stride);
      if (left > 0) {
        Inputs& row = next[slot];
        if constexpr (kShared) {
#pragma unroll
          for (int i = 0; i < kInner; i += kTogether) row.inner[i / kTogether].read(source + offsets[0] + i * step);
#pragma unroll
          for (int i = 0; i < 2 * kEdge; ++i) row.edges[i] = source[offsets[1 + i]];
        } else {
#pragma unroll
          for (int a = 0; a < kWindows; ++a) {
#pragma unroll
            for (int k = 0; k < kX; ++k) row.taps[k][a].read(source + offsets[a] + k * step);
          }
        }
      }
      source += call.y.in_stride;
      --left;
    }

    void push(int p) {
#pragma unroll
      for (int a = 0; a < kColumns; ++a) {
        const int64_t channel = channel_of(call, place.channel, columns[a].c);
        Value sum = Sum::start(call.x.precision);
#pragma unroll
        for (int k = 0; k < kX; ++k) {
          const From read = next[p % kAhead].at(a, k);
          sum = Sum::add(sum, weight[a % kWindows][k], Sum::value(Load::apply(read, call, channel)));
        }
        ring[a][p % kY] = Sum::rounded(sum, call.x.precision);
      }
    }

    void store(const Row& row, int p) {
      Vector<To, kColumns> out;
      Value sums[kColumns];
#pragma unroll
      for (int a = 0; a < kColumns; ++a) {
        Value sum = Sum::start(call.y.precision);
#pragma unroll
        for (int k = 0; k < kY; ++k) sum = Sum::add(sum, row.words[k], ring[a][(p + 1 + k) % kY]);
        sum = Sum::rounded(sum, call.y.precision);
        spoilt = Sum::spoilt(spoilt, sum);
        sums[a] = sum;
        out.items[a] = output(call, place, columns[a], row.border, sum);
      }
      if constexpr (Store::kOnlyRounds && !kBordered && kColumns % 2 == 0) out = rounded_pairs<To>(sums);
      if (kStores == kAtOnce) {
        *reinterpret_cast<Vector<To, kColumns>*>(target) = out;
      } else {
#pragma unroll
        for (int a = 0; a < kColumns; ++a) {
          const int64_t apart = columns[a].x * call.x.out_stride + columns[a].c * call.out_channel_stride;
          if (a < owned) target[kStores == kApart ? apart : a] = out.items[a];
        }
      }
    }
  };
};

}  // namespace polyphase
