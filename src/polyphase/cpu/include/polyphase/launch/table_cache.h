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
// weights. All but the row map is one piece of memory, no larger than it need be: many tables are kept.
class Table {
 public:
  Table(const Sampler& sampler, const AxisRequest& request) : sampler_(sampler), request_(request) {
    Kept<TapTable> made;
    make_taps(request, sampler, &*made);
    if (sampler.weigh != nullptr) made->index_only = false;  // an adjoint that happens to be is summed as any
    for (int64_t i = 0; i < made->out_size(); ++i) most_taps_ = max(most_taps_, made->begin[i + 1] - made->begin[i]);
    keep(made->view());
    int64_t map_bytes = 0;
    if (request.channels > 0) row_map_ = sampler.prepare(made->view(), request.channels, request.element_bytes, &map_bytes);
    bytes_ = static_cast<int64_t>(sizeof(*this)) + memory_.bytes() + map_bytes;
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

  static uint64_t hash_for(const Sampler& sampler, const AxisRequest& request) {
    const uint64_t head = hash_of(&request, kHead / 8, reinterpret_cast<uint64_t>(&sampler));
    return hash_of(request.steps, steps_bytes(request) / 8, head);
  }
  bool is_for(const Sampler& sampler, const AxisRequest& request) const {
    return &sampler == &sampler_ && std::memcmp(&request, &request_, kHead) == 0 &&
           std::memcmp(request.steps, request_.steps, steps_bytes(request)) == 0;
  }

 private:
  friend class SharedTable;

  static constexpr int64_t kHead = offsetof(AxisRequest, steps);
  static int64_t steps_bytes(const AxisRequest& request) { return request.step_count * static_cast<int64_t>(sizeof(Step)); }

  // Copies what the table is for, and taps. Rows are read by their own tables.
  void keep(const Taps& made) {
    const int64_t rows = made.out_size, taps = request_.channels > 0 ? 0 : made.begin[rows];
    const int64_t borders = made.border == nullptr ? 0 : rows;
    memory_.resize_unset(steps_bytes(request_) + taps * 12 + (rows + 1 + borders) * 4);
    uint8_t* to = memory_.data();
    const auto copied = [&to](const auto* from, int64_t count) {
      auto* const copy = reinterpret_cast<decltype(from)>(to);
      if (count > 0) std::memcpy(to, from, count * sizeof(*from));
      to += count * sizeof(*from);
      return count > 0 ? copy : nullptr;
    };
    taps_ = made;
    request_.steps = copied(request_.steps, request_.step_count);
    taps_.weight = copied(made.weight, taps);
    taps_.index = copied(made.index, taps);
    taps_.begin = copied(made.begin, rows + 1);
    taps_.border = copied(made.border, borders);
  }

  const Sampler& sampler_;
  AxisRequest request_;
  Taps taps_;
  const RowMap* row_map_ = nullptr;
  int32_t most_taps_ = 0;
  int64_t bytes_;
  Buffer<uint8_t> memory_;
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

// Where a table may lie follows from what it is for: a few places are looked at, not all of them, most of which have left the
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
    const uint64_t hash = Table::hash_for(sampler, request);
    {
      const Lock lock(&mutex());
      Place* const found = find(sampler, request, hash);
      if (found != nullptr) {
        found->used = ++uses_;
        ++cached_;
        return found->table;
      }
    }
    const SharedTable table(new Table(sampler, request));
    const Lock lock(&mutex());
    ++made_;
    if (table->bytes() <= kMostBytes / 4 && find(sampler, request, hash) == nullptr) insert(table, hash);
    return table;
  }

  void clear() {
    const Lock lock(&mutex());
    for (Place& place : places_) empty(place);
  }

  int64_t made() const { return made_; }
  int64_t cached() const { return cached_; }

 private:
  struct Place {
    uint64_t hash = 0;
    int64_t used = 0;  // the greater, the later; 0 where it is empty
    SharedTable table;
  };

  static pthread_mutex_t& mutex() {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    return mutex;
  }

  Place* set_of(uint64_t hash) { return places_ + hash % kSets * kPlaces; }

  // Null where it is not there.
  Place* find(const Sampler& sampler, const AxisRequest& request, uint64_t hash) {
    Place* const set = set_of(hash);
    for (Place* place = set; place != set + kPlaces; ++place) {
      if (place->used > 0 && place->hash == hash && place->table->is_for(sampler, request)) return place;
    }
    return nullptr;
  }

  // In an empty place, or in that of the one used longest ago.
  void insert(const SharedTable& table, uint64_t hash) {
    Place& place = *oldest(set_of(hash), kPlaces, [](const Place&) { return true; });
    empty(place);
    place = {hash, ++uses_, table};
    bytes_ += table->bytes();
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
    if (place.used == 0) return;
    bytes_ -= place.table->bytes();
    place = {};
  }

  Place places_[kSets * kPlaces];
  int64_t bytes_ = 0, uses_ = 0, made_ = 0, cached_ = 0;
};

}  // namespace polyphase
