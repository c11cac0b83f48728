// A few rows at hand: those a weighted sum reads, and those the next one will read again.
#pragma once

#include <cstdint>

#include "polyphase/core/abi.h"
#include "polyphase/core/buffer.h"

namespace polyphase {

template <class T>
class RowCache {
 public:
  // As many slots as one sum reads rows; keys are 0 to keys - 1.
  POLYPHASE_ROW_LOOP void resize(int64_t slots, int64_t length, int64_t keys) {
    // Slots an odd number of cache lines apart do not compete for the same places in the cache.
    constexpr int64_t kSize = sizeof(T);
    stride_ = ((length + 64) * kSize / 64 | 1) * 64 / kSize;
    values_.resize(slots * stride_);
    key_of_.fill(slots, -1);
    kept_.resize(slots);
    slot_of_.fill(keys, -1);
  }

  int slots() const { return static_cast<int>(key_of_.size()); }

  void clear() {
    for (int64_t& key : key_of_) {
      if (key >= 0) slot_of_[key] = -1;
      key = -1;
    }
  }

  // Where rows lie, null for those that are not at hand; returns how many are not. Until the next call, `add` takes no slot
  // that holds one of them.
  int find(const int32_t* rows, int count, int64_t first_key, const void** found) {
    ++now_;
    int missing = 0;
    for (int k = 0; k < count; ++k) {
      const int32_t slot = slot_of_[first_key + rows[k]];
      found[k] = slot < 0 ? nullptr : values_.data() + slot * stride_;
      if (slot < 0) {
        ++missing;
      } else {
        kept_[slot] = now_;
      }
    }
    return missing;
  }

  bool has(int64_t key) const { return slot_of_[key] >= 0; }

  T* add(int64_t key) {
    while (kept_[next_] == now_) next_ = next_ + 1 == slots() ? 0 : next_ + 1;
    if (key_of_[next_] >= 0) slot_of_[key_of_[next_]] = -1;
    key_of_[next_] = key;
    slot_of_[key] = next_;
    kept_[next_] = now_;
    return values_.data() + next_ * stride_;
  }

 private:
  int64_t stride_ = 0;
  int32_t next_ = 0;
  int64_t now_ = 0;
  Buffer<T> values_;
  Buffer<int64_t> key_of_;   // per slot, -1 for none
  Buffer<int64_t> kept_;     // per slot: the last sum that reads it
  Buffer<int32_t> slot_of_;  // per key, -1 for none
};

}  // namespace polyphase
