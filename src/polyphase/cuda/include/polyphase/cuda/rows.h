// What a block knows of the output rows it makes, in shared memory.
#pragma once

#include "polyphase/cuda/places.h"

namespace polyphase {

// An output row is made when the input rows before `until` are there. `words` weigh the latest of them.
template <class Word, int kWords>
struct alignas(16) OutputRow {
  Word words[kWords];
  int32_t until;
  int32_t border;
};

// Of rows [y, y + count), by all threads of a block: `weigh(row, weights)` fills in the words from a row's kY weights.
template <int kY, bool kBordered, int kThreads, class Weight, class Row, class Weigh>
inline void stage_rows(const MapsCall& call, Row* rows, int64_t y, int count, int thread, const Weigh& weigh) {
#pragma unroll 1
  for (int i = thread; i < count; i += kThreads) {
    weigh(rows[i], static_cast<const Weight*>(call.y.weight) + (y + i) * kY);
    rows[i].until = call.y.first[y + i] + kY;
    rows[i].border = kBordered ? border_at(call.y, y + i) : 0;
  }
}

}  // namespace polyphase
