// The tables of axes seen lately. Bounded, and safe among threads and forks.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstring>

#include "polyphase/core/abi.h"
#include "polyphase/core/buffer.h"
#include "polyphase/core/hash.h"
#include "polyphase/core/standard.h"
#include "polyphase/taps/taps.h"
#include "polyphase/launch/threads.h"

namespace polyphase {

// The tables of one axis. `row_map` is null where the axis is not read horizontally; else taps have neither indices nor
// weights.
class Table {
 public:
  Table(const Sampler& sampler, const AxisRequest& request) : owned_(make_taps(request, sampler)), sampler_(sampler) {
    if (sampler.weigh != nullptr) owned_.index_only = false;  // an adjoint that happens to be is summed as any
    taps_ = owned_.view();
    for (int64_t i = 0; i < taps_.out_size; ++i) most_taps_ = max(most_taps_, taps_.begin[i + 1] - taps_.begin[i]);
    int64_t map_bytes = 0;
    if (request.channels > 0) {
      row_map_ = sampler.prepare(taps_, request.channels, request.element_bytes, &map_bytes);
      forget_taps();
    }
    bytes_ = owned_.bytes() + map_bytes;
  }
  ~Table() {
    if (row_map_ != nullptr) sampler_.release(row_map_);
  }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  const Taps& taps() const { return taps_; }
  int64_t most_taps() const { return most_taps_; }
  const RowMap* row_map() const { return row_map_; }
  int64_t bytes() const { return bytes_; }

 private:
  friend class SharedTable;

  // Rows are read by their own tables.
  void forget_taps() {
    owned_.index = Buffer<int32_t>();
    owned_.weight = Buffer<double>();
    taps_ = owned_.view();
  }

  TapTable owned_;
  Taps taps_;
  const Sampler& sampler_;
  const RowMap* row_map_ = nullptr;
  int32_t most_taps_ = 0;
  int64_t bytes_;
  mutable int64_t owners_ = 1;
};

// A table, deleted by the last of its owners. <memory> takes long to compile.
class SharedTable {
 public:
  SharedTable() = default;
  explicit SharedTable(const Table* table) : table_(table) {}  // its first owner
  SharedTable(const SharedTable& other) : table_(other.table_) {
    if (table_ != nullptr) __atomic_add_fetch(&table_->owners_, 1, __ATOMIC_RELAXED);
  }
  SharedTable& operator=(SharedTable other) {
    swap(table_, other.table_);
    return *this;
  }
  ~SharedTable() {
    if (table_ != nullptr && __atomic_sub_fetch(&table_->owners_, 1, __ATOMIC_ACQ_REL) == 0) delete table_;
  }

  const Table* operator->() const { return table_; }

 private:
  const Table* table_ = nullptr;
};

// What identifies a table.
inline Buffer<uint8_t> key_of(const Sampler* sampler, const AxisRequest& request) {
  constexpr int64_t kSampler = sizeof(sampler), kHead = kSampler + offsetof(AxisRequest, steps);
  const int64_t tail = request.step_count * static_cast<int64_t>(sizeof(Step));
  Buffer<uint8_t> key(kHead + tail);
  std::memcpy(key.data(), &sampler, kSampler);
  std::memcpy(key.data() + kSampler, &request, kHead - kSampler);
  std::memcpy(key.data() + kHead, request.steps, tail);
  return key;
}

// Where a table may lie follows from its key: a few places are looked at, not all of them, most of which have left the
// processor's caches where images have gone through those.
class TableCache {
 public:
  static constexpr int64_t kMostBytes = 64 << 20;
  static constexpr int64_t kSets = 128, kPlaces = 8;  // of each set

  static TableCache& instance() {
    static TableCache* cache = [] {
      // A fork while another thread holds the lock would leave it locked in the child for ever.
      pthread_atfork([] { pthread_mutex_lock(&mutex()); }, [] { pthread_mutex_unlock(&mutex()); },
                     [] { pthread_mutex_unlock(&mutex()); });
      return new TableCache;
    }();
    return *cache;
  }

  SharedTable get(const Sampler& sampler, const AxisRequest& request) {
    Buffer<uint8_t> key = key_of(&sampler, request);
    const uint64_t hash = hash_of(key.data(), key.size() / 8);
    {
      const Lock lock(&mutex());
      Place* const found = find(key, hash);
      if (found != nullptr) {
        found->used = ++uses_;
        ++cached_;
        return found->entry->table;
      }
    }
    const SharedTable table(new Table(sampler, request));
    const Lock lock(&mutex());
    ++made_;
    if (table->bytes() <= kMostBytes / 4 && find(key, hash) == nullptr) insert(new Entry{move(key), table}, hash);
    return table;
  }

  void clear() {
    const Lock lock(&mutex());
    for (Place& place : places_) empty(place);
  }

  int64_t made() const { return made_; }
  int64_t cached() const { return cached_; }

 private:
  struct Entry {
    Buffer<uint8_t> key;
    SharedTable table;
  };
  struct Place {
    uint64_t hash = 0;
    int64_t used = 0;  // the greater, the later; 0 where it is empty
    Entry* entry = nullptr;
  };

  static pthread_mutex_t& mutex() {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    return mutex;
  }

  Place* set_of(uint64_t hash) { return places_ + hash % kSets * kPlaces; }

  // Null where it is not there.
  Place* find(const Buffer<uint8_t>& key, uint64_t hash) {
    Place* const set = set_of(hash);
    for (Place* place = set; place != set + kPlaces; ++place) {
      if (place->entry == nullptr || place->hash != hash) continue;
      const Buffer<uint8_t>& other = place->entry->key;
      if (other.size() == key.size() && std::memcmp(other.data(), key.data(), key.size()) == 0) return place;
    }
    return nullptr;
  }

  // In an empty place, or in that of the one used longest ago.
  void insert(Entry* entry, uint64_t hash) {
    Place& place = *oldest(set_of(hash), kPlaces, [](const Place&) { return true; });
    empty(place);
    place = {hash, ++uses_, entry};
    bytes_ += entry->table->bytes();
    while (bytes_ > kMostBytes) empty(*oldest(places_, kSets * kPlaces, [](const Place& one) { return one.used > 0; }));
  }

  template <class Wanted>
  static Place* oldest(Place* places, int64_t count, Wanted wanted) {
    Place* found = nullptr;
    for (Place* place = places; place != places + count; ++place) {
      if (wanted(*place) && (found == nullptr || place->used < found->used)) found = place;
    }
    return found;
  }

  void empty(Place& place) {
    if (place.entry == nullptr) return;
    bytes_ -= place.entry->table->bytes();
    delete place.entry;
    place = {};
  }

  Place places_[kSets * kPlaces];
  int64_t bytes_ = 0, uses_ = 0, made_ = 0, cached_ = 0;
};

}  // namespace polyphase
