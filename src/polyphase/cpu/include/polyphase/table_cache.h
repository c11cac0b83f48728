// The tables of axes seen lately: taps, and what a kernel made of them. Bounded, and safe among threads and forks.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "polyphase/abi.h"
#include "polyphase/buffer.h"
#include "polyphase/taps.h"
#include "polyphase/threads.h"

namespace polyphase {

// The tables of one axis. `lanes` is null where the axis is not read horizontally.
class Table {
 public:
  Table(TapTable table, const Kernel& kernel, int64_t channels) : owned_(std::move(table)), kernel_(kernel) {
    taps_ = owned_.view();
    int64_t lanes_bytes = 0;
    if (channels > 0) lanes_ = kernel.prepare(taps_, channels, &lanes_bytes);
    bytes_ = owned_.bytes() + lanes_bytes;
    for (int64_t i = 0; i < taps_.out_size; ++i) most_taps_ = std::max(most_taps_, taps_.begin[i + 1] - taps_.begin[i]);
  }
  ~Table() {
    if (lanes_ != nullptr) kernel_.release(lanes_);
  }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  const Taps& taps() const { return taps_; }
  int64_t most_taps() const { return most_taps_; }
  const void* lanes() const { return lanes_; }
  size_t bytes() const { return bytes_; }

 private:
  TapTable owned_;
  Taps taps_;
  const Kernel& kernel_;
  const void* lanes_ = nullptr;
  int32_t most_taps_ = 0;
  size_t bytes_;
};

// What identifies a table: `channels` is 0 where the axis is not read horizontally.
struct TableRequest {
  const Kernel* kernel;
  int64_t channels;
  int64_t in_size;
  int64_t transposed;
  const Step* steps;
  int64_t step_count;

  std::string key() const {
    std::string key(reinterpret_cast<const char*>(this), offsetof(TableRequest, steps));
    return key.append(reinterpret_cast<const char*>(steps), step_count * sizeof(Step));
  }
};

class TableCache {
 public:
  static constexpr size_t kMostBytes = 64 << 20;
  static constexpr int64_t kMostTables = 1024;

  static TableCache& instance() {
    static TableCache* cache = [] {
      // A fork while another thread holds the lock would leave it locked in the child for ever.
      pthread_atfork([] { pthread_mutex_lock(&mutex()); }, [] { pthread_mutex_unlock(&mutex()); },
                     [] { pthread_mutex_unlock(&mutex()); });
      return new TableCache;
    }();
    return *cache;
  }

  std::shared_ptr<const Table> get(const TableRequest& request) {
    const std::string key = request.key();
    {
      const Lock lock(&mutex());
      if (Entry* found = find(key)) {
        found->used = ++uses_;
        ++cached_;
        return found->table;
      }
    }
    TapTable taps = make_taps(request.steps, request.step_count, request.in_size,
                              static_cast<Arithmetic>(request.kernel->arithmetic), request.transposed != 0);
    auto table = std::make_shared<const Table>(std::move(taps), *request.kernel, request.channels);
    const Lock lock(&mutex());
    ++made_;
    if (table->bytes() <= kMostBytes / 4 && find(key) == nullptr) insert(key, table);
    return table;
  }

  void clear() {
    const Lock lock(&mutex());
    for (Entry* entry : entries_) delete entry;
    entries_.resize(0);
    bytes_ = 0;
  }

  int64_t made() const { return made_; }
  int64_t cached() const { return cached_; }

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const Table> table;
    int64_t used;  // the greater, the later
  };

  static pthread_mutex_t& mutex() {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    return mutex;
  }

  // Looked for one by one: a kernel is bound to its tables once, then launched without asking.
  Entry* find(const std::string& key) {
    for (Entry* entry : entries_) {
      if (entry->key == key) return entry;
    }
    return nullptr;
  }

  void insert(const std::string& key, const std::shared_ptr<const Table>& table) {
    entries_.push_back(new Entry{key, table, ++uses_});
    bytes_ += table->bytes();
    while (bytes_ > kMostBytes || entries_.size() > kMostTables) {
      int64_t oldest = 0;
      for (int64_t e = 1; e < entries_.size(); ++e) oldest = entries_[e]->used < entries_[oldest]->used ? e : oldest;
      bytes_ -= entries_[oldest]->table->bytes();
      delete entries_[oldest];
      entries_[oldest] = entries_.back();
      entries_.resize(entries_.size() - 1);
    }
  }

  Buffer<Entry*> entries_;
  size_t bytes_ = 0;
  int64_t uses_ = 0, made_ = 0, cached_ = 0;
};

}  // namespace polyphase
