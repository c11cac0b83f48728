// The tables of axes seen lately: taps, and what a kernel made of them. Bounded, and safe among threads and forks.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "polyphase/abi.h"
#include "polyphase/taps.h"

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
  static constexpr size_t kMostTables = 1024;

  static TableCache& instance() {
    static TableCache* cache = [] {
      // A fork while another thread holds the lock would leave it locked in the child for ever.
      pthread_atfork([] { instance_lock().lock(); }, [] { instance_lock().unlock(); }, [] { instance_lock().unlock(); });
      return new TableCache;
    }();
    return *cache;
  }

  std::shared_ptr<const Table> get(const TableRequest& request) {
    const std::string key = request.key();
    {
      const std::lock_guard<std::mutex> lock(instance_lock());
      const auto found = places_.find(key);
      if (found != places_.end()) {
        latest_.splice(latest_.begin(), latest_, found->second);
        ++cached;
        return found->second->table;
      }
    }
    auto table = std::make_shared<const Table>(
        make_taps(request.steps, request.step_count, request.in_size,
                  static_cast<Arithmetic>(request.kernel->arithmetic), request.transposed != 0),
        *request.kernel, request.channels);
    const std::lock_guard<std::mutex> lock(instance_lock());
    ++made;
    if (table->bytes() <= kMostBytes / 4 && places_.find(key) == places_.end()) insert(key, table);
    return table;
  }

  void clear() {
    const std::lock_guard<std::mutex> lock(instance_lock());
    places_.clear();
    latest_.clear();
    bytes_ = 0;
  }

  std::atomic<int64_t> made{0}, cached{0};

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const Table> table;
  };

  static std::mutex& instance_lock() {
    static std::mutex* mutex = new std::mutex;
    return *mutex;
  }

  void insert(const std::string& key, const std::shared_ptr<const Table>& table) {
    latest_.push_front({key, table});
    places_[key] = latest_.begin();
    bytes_ += table->bytes();
    while (bytes_ > kMostBytes || latest_.size() > kMostTables) {
      bytes_ -= latest_.back().table->bytes();
      places_.erase(latest_.back().key);
      latest_.pop_back();
    }
  }

  std::list<Entry> latest_;  // the latest used first
  std::unordered_map<std::string, std::list<Entry>::iterator> places_;
  size_t bytes_ = 0;
};

}  // namespace polyphase
