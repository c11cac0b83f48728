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

// The tables of one axis. `row_map` is null where the axis is not read horizontally; else taps are no more than their number.
// All but the row map is one piece of memory, no larger than it need be: many tables are kept, and what is thrown out for a
// new one has long left the processor's caches.
class Table {
 public:
  static const Table* make(const Sampler& sampler, const AxisRequest& request) {
    Kept<TapTable> made;
    make_taps(request, sampler, &*made);
    if (sampler.weigh != nullptr) made->index_only = false;  // an adjoint that happens to be is summed as any
    const Taps taps = made->view();
    return new (kept_bytes(request, taps)) Table(sampler, request, taps);
  }
  ~Table() {
    if (row_map_ != nullptr) sampler_.release(row_map_);
  }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  static void operator delete(void* memory) { __builtin_free(memory); }

  const Taps& taps() const { return taps_; }
  int64_t most_taps() const { return most_taps_; }
  int64_t tap_count() const { return tap_count_; }
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

  // What follows the table itself.
  static int64_t kept_bytes(const AxisRequest& request, const Taps& made) {
    if (request.channels > 0) return steps_bytes(request);
    const int64_t weight = made.quantised != nullptr ? sizeof(*made.quantised) : sizeof(*made.exact);
    const int64_t of_row = (made.border == nullptr ? 1 : 2) * sizeof(*made.begin);
    return steps_bytes(request) + made.begin[made.out_size] * (weight + sizeof(*made.index)) + (made.out_size + 1) * of_row;
  }
  static void* operator new(size_t size, int64_t more) {
    void* const memory = __builtin_malloc(size + static_cast<size_t>(more));
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
  }
  static void operator delete(void* memory, int64_t) { __builtin_free(memory); }

  Table(const Sampler& sampler, const AxisRequest& request, const Taps& made)
      : sampler_(sampler), tap_count_(made.begin[made.out_size]), request_(request), taps_(made) {
    for (int64_t i = 0; i < made.out_size; ++i) most_taps_ = max(most_taps_, made.begin[i + 1] - made.begin[i]);
    keep(made);
    int64_t map_bytes = 0;
    if (request.channels > 0) row_map_ = sampler.prepare(made, request.channels, request.pixel, request.element_bytes, &map_bytes);
    bytes_ = static_cast<int64_t>(sizeof(*this)) + kept_bytes(request, made) + map_bytes;
  }

  // Copies what the table is for, and taps, unless rows are read by tables of their own. Doubles come before shorts.
  void keep(const Taps& made) {
    const bool taps = request_.channels == 0;
    auto* to = reinterpret_cast<uint8_t*>(this + 1);
    const auto copied = [&to](const auto* from, bool wanted, int64_t count) {
      auto* const copy = reinterpret_cast<decltype(from)>(to);
      if (!wanted || from == nullptr || count == 0) return decltype(from){nullptr};
      std::memcpy(to, from, count * sizeof(*from));
      to += count * sizeof(*from);
      return copy;
    };
    request_.steps = copied(request_.steps, true, request_.step_count);
    taps_.exact = copied(made.exact, taps, tap_count_);
    taps_.index = copied(made.index, taps, tap_count_);
    taps_.begin = copied(made.begin, taps, made.out_size + 1);
    taps_.border = copied(made.border, taps, made.out_size);
    taps_.quantised = copied(made.quantised, taps, tap_count_);
  }

  mutable int64_t owners_ = 1;
  const Sampler& sampler_;
  const RowMap* row_map_ = nullptr;
  int64_t bytes_;
  int32_t most_taps_ = 0;
  int64_t tap_count_;
  AxisRequest request_;
  Taps taps_;
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
    const SharedTable table(Table::make(sampler, request));
    bool touch;
    {
      const Lock lock(&mutex());
      ++made_;
      if (table->bytes() <= kMostBytes / 4 && find(sampler, request, hash) == nullptr) insert(table, hash);
      touch = made_bytes_ / kTouched != (made_bytes_ + table->bytes()) / kTouched;
      made_bytes_ += table->bytes();
    }
    if (touch) touch_ahead();
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

  // Memory that is new to the process costs several times as much where its pages are met one by one, after images have gone
  // through the caches, than where the next ones are touched together. What is freed here, malloc gives next.
  static constexpr int64_t kTouched = 64 << 10, kPage = 4 << 10;
  static void touch_ahead() {
    auto* const next = static_cast<volatile uint8_t*>(__builtin_malloc(kTouched));
    for (int64_t i = 0; next != nullptr && i < kTouched; i += kPage) next[i] = 0;
    __builtin_free(const_cast<uint8_t*>(next));
  }

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
  int64_t bytes_ = 0, made_bytes_ = 0, uses_ = 0, made_ = 0, cached_ = 0;
};

}  // namespace polyphase
