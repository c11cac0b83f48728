// What was bound for sizes seen lately.
#pragma once

#include <cstring>

#include "polyphase/core/buffer.h"
#include "polyphase/core/hash.h"
#include "polyphase/launch/tensors.h"

namespace polyphase {

// Sizes and strides of tensors, and numbers besides, to be found by.
struct Key {
  static constexpr int64_t kMostBesides = 65;
  static constexpr int64_t kMost = 2 * (1 + 2 * kMaxDimensions) + kMostBesides;
  int64_t length = 0;
  int64_t numbers[kMost];

  Key(const Extent* tensors, int64_t count) {
    for (int64_t t = 0; t < count; ++t) {
      numbers[length++] = tensors[t].rank;
      for (int64_t d = 0; d < tensors[t].rank; ++d) {
        numbers[length++] = tensors[t].size[d];
        numbers[length++] = tensors[t].stride[d];
      }
    }
  }

  void add(int64_t number) { numbers[length++] = number; }

  bool operator==(const Key& other) const {
    return length == other.length && std::memcmp(numbers, other.numbers, length * sizeof(int64_t)) == 0;
  }
  uint64_t hash() const { return hash_of(numbers, length); }

  // Only as many numbers as there are.
  void become(const Key& other) {
    length = other.length;
    std::memcpy(numbers, other.numbers, length * sizeof(int64_t));
  }
};

inline void add_owner(PyObject* object) { Py_IncRef(object); }
inline void remove_owner(PyObject* object) { Py_DecRef(object); }

// What a caller chose to keep, which counts its owners, by sizes. The GIL is held wherever it is looked at.
template <class Kept>
class Sizes {
 public:
  static constexpr int64_t kMostCalls = 256;

  Sizes() = default;
  Sizes(const Sizes&) = delete;
  Sizes& operator=(const Sizes&) = delete;
  ~Sizes() {
    for (const Call& call : calls_) remove_owner(call.kept);
  }

  // Which the caller owns, or null.
  Kept* find(const Key& key, uint64_t hash) {
    if (latest_ < calls_.size() && hashes_[latest_] == hash && calls_[latest_].key == key) return owned_by_two(latest_);
    for (int64_t c = 0; c < hashes_.size(); ++c) {
      if (hashes_[c] != hash || !(calls_[c].key == key)) continue;
      latest_ = c;
      return owned_by_two(c);
    }
    return nullptr;
  }

  // The oldest, where there are many, whose memory may be used for what is kept in its place. The caller owns it; or null.
  Kept* give_up() {
    if (calls_.size() < kMostCalls) return nullptr;
    Call& call = calls_[oldest_];
    call.key.length = 0;
    Kept* const kept = call.kept;
    call.kept = nullptr;
    return kept;
  }

  // In the place of the oldest, where there are many.
  void keep(const Key& key, uint64_t hash, Kept* made) {
    if (calls_.size() < kMostCalls) {
      calls_.reserve(calls_.size() + 1);  // no memory: no hash without a call
      hashes_.push_back(hash);
      calls_.push_back({key, made});
      add_owner(made);
      latest_ = calls_.size() - 1;
      return;
    }
    latest_ = oldest_;
    oldest_ = (oldest_ + 1) % kMostCalls;
    Call& call = calls_[latest_];
    Kept* const before = call.kept;
    hashes_[latest_] = hash;
    call.key.become(key);
    call.kept = made;
    add_owner(made);
    remove_owner(before);
  }

 private:
  struct Call {
    Key key;
    Kept* kept;
  };

  Kept* owned_by_two(int64_t c) {
    add_owner(calls_[c].kept);
    return calls_[c].kept;
  }

  Buffer<uint64_t> hashes_;  // side by side, of each
  Buffer<Call> calls_;
  int64_t latest_ = 0, oldest_ = 0;
};

}  // namespace polyphase
