// Memory of a device for tables, which is filled in the order of the stream that reads it first.
#pragma once

#include <pthread.h>

#include "polyphase/core/buffer.h"
#include "polyphase/launch/device_driver.h"

namespace polyphase {

// A piece of memory, of which parts were filled, all on one stream. event: the latest of them was. owners: tables that
// are still read, and who gives out the rest. All but `others` and `kept` are looked at only where the GIL is held.
struct Chunk {
  int64_t address, bytes, used, owners;
  void *stream, *event;
  void* context;
  bool others;  // another stream may have read it
  bool kept;    // a graph was captured that reads it, which may be replayed at any time
};

// The context is current, and memory may be had although a graph is being captured: what is done is not part of it.
class Aside {
 public:
  explicit Aside(void* context) {
    void* found = nullptr;
    elsewhere_ = current_context(&found) == 0 && found != context && push_context(context) == 0;
    memory_functions.exchange_capture_mode(&mode_);
  }
  ~Aside() {
    memory_functions.exchange_capture_mode(&mode_);
    void* popped = nullptr;
    if (elsewhere_) pop_context(&popped);
  }
  Aside(const Aside&) = delete;

 private:
  bool elsewhere_;
  int mode_ = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED
};

// Of one context, for ever. Memory is used again in the order of the stream whose it was: nobody waits for it.
class TableMemory {
 public:
  static TableMemory& of(void* context) {
    static Buffer<TableMemory*>* const all = [] {
      pthread_atfork(nullptr, nullptr, [] { lost_ = true; });
      return new Buffer<TableMemory*>;
    }();
    for (TableMemory* one : *all) {
      if (one->context_ == context) return *one;
    }
    all->push_back(new TableMemory(context));
    return *(*all)[all->size() - 1];
  }
  TableMemory(const TableMemory&) = delete;

  // So many bytes, which fill(address, stream) fills in the order of a stream: what they are part of, with one more owner; or
  // null, where the driver refuses.
  template <class Fill>
  Chunk* filled(int64_t size, void* stream, bool captured, const Fill& fill) {
    if (lost_) return nullptr;
    const Aside aside(context_);
    if (captured && (stream = own_stream()) == nullptr) return nullptr;
    Chunk* const chunk = size > kChunk / 4 ? allocated(size, stream) : with_room(size, stream);
    if (chunk == nullptr) return nullptr;
    chunk->owners += size > kChunk / 4 ? 0 : 1;  // which gives out the rest
    const int64_t address = chunk->address + chunk->used;
    chunk->used += (size + kPiece - 1) / kPiece * kPiece;
    if (fill(address, stream) && memory_functions.record(chunk->event, stream) == 0) return chunk;
    let_go(chunk);
    return nullptr;
  }

  static void let_go(Chunk* chunk) {
    if (--chunk->owners == 0 && !chunk->kept && !lost_) of(chunk->context).take_back(chunk);
  }

 private:
  // The driver takes longer to give memory out than to fill it. What lies at one address is never another's too soon.
  static constexpr int64_t kChunk = 1 << 20, kPiece = 256, kMostOpen = 8, kMostSpare = 8;

  explicit TableMemory(void* context) : context_(context) {}

  void* own_stream() {
    constexpr unsigned kNonBlocking = 1;
    if (own_stream_ == nullptr && memory_functions.new_stream(&own_stream_, kNonBlocking) != 0) own_stream_ = nullptr;
    return own_stream_;
  }

  // Null where there is none.
  Chunk* with_room(int64_t size, void* stream) {
    int64_t place = 0;
    while (place < open_.size() && open_[place]->stream != stream) ++place;
    if (place < open_.size() && open_[place]->used + size <= open_[place]->bytes) return open_[place];
    Chunk* const spare = spare_of(stream);
    Chunk* const chunk = spare != nullptr ? spare : allocated(kChunk, stream);
    if (chunk == nullptr) return nullptr;
    if (open_.size() == kMostOpen && place == kMostOpen) place = 0;
    if (place < open_.size()) {
      Chunk* const before = open_[place];
      open_[place] = chunk;
      let_go(before);
    } else {
      open_.push_back(chunk);
    }
    return chunk;
  }
  Chunk* allocated(int64_t bytes, void* stream) {
    constexpr unsigned kWithoutTime = 2;
    void* event = nullptr;
    int64_t address = 0;
    if (memory_functions.new_event(&event, kWithoutTime) != 0) return nullptr;
    if (memory_functions.allocate(&address, bytes) == 0) return new Chunk{address, bytes, 0, 1, stream, event, context_, false, false};
    memory_functions.delete_event(event);
    return nullptr;
  }
  Chunk* spare_of(void* stream) {
    for (Chunk*& one : spare_) {
      if (one->stream != stream) continue;
      Chunk* const found = one;
      one = spare_[spare_.size() - 1];
      spare_.resize(spare_.size() - 1);
      found->used = 0;
      found->owners = 1;
      return found;
    }
    return nullptr;
  }
  void take_back(Chunk* chunk) {
    if (!chunk->others && chunk->bytes == kChunk && spare_.size() < kMostSpare) return spare_.push_back(chunk);
    const Aside aside(context_);
    memory_functions.free(chunk->address);  // waits for who may read it
    memory_functions.delete_event(chunk->event);
    delete chunk;
  }

  static inline bool lost_ = false;  // by a fork

  void* const context_;
  void* own_stream_ = nullptr;
  Buffer<Chunk*> open_, spare_;
};

// Has a stream read tables: after they were filled. Where a graph is captured, they are there before it ends, and stay.
inline Status let_read(Chunk& chunk, void* stream, bool captured) {
  if (captured) {
    __atomic_store_n(&chunk.kept, true, __ATOMIC_RELAXED);
    const Aside aside(chunk.context);
    return memory_functions.synchronize(chunk.event);
  }
  if (stream == chunk.stream) return 0;
  __atomic_store_n(&chunk.others, true, __ATOMIC_RELAXED);
  return memory_functions.wait(stream, chunk.event, 0);
}

}  // namespace polyphase
