// An array on the heap. <vector> would do, but takes long to compile, and kernels are built while a user waits.
#pragma once

#include <cstdint>
#include <cstring>
#include <new>

#include "polyphase/core/standard.h"

namespace polyphase {

// Tables are read a vector at a time; aligned to a cache line, no vector lies across two. std::aligned_alloc is much slower
// than malloc, and a table has many buffers. So memory comes from malloc, whose address is kept just before the aligned one.
constexpr int64_t kAlignment = 64;

__attribute__((noinline)) inline void deallocate(void* data) {
  if (data != nullptr) __builtin_free(static_cast<void**>(data)[-1]);
}

// Grows a buffer to `bytes` or more, at least to twice its capacity. What is new is zero, or is to be written first.
__attribute__((noinline)) inline void* reallocate(void* data, int64_t* capacity, int64_t bytes, bool zero = true) {
  const int64_t larger = ((bytes > 2 * *capacity ? bytes : 2 * *capacity) + kAlignment - 1) / kAlignment * kAlignment;
  auto* allocated = static_cast<uint8_t*>(__builtin_malloc(static_cast<size_t>(larger + kAlignment)));
  if (allocated == nullptr) throw std::bad_alloc();
  uint8_t* moved = allocated + kAlignment - reinterpret_cast<uintptr_t>(allocated) % kAlignment;
  reinterpret_cast<void**>(moved)[-1] = allocated;
  if (data != nullptr) std::memcpy(moved, data, static_cast<size_t>(*capacity));
  if (zero) std::memset(moved + *capacity, 0, static_cast<size_t>(larger - *capacity));
  deallocate(data);
  *capacity = larger;
  return moved;
}

template <class T>
class Buffer {
  static_assert(__is_trivially_copyable(T), "elements are moved by memcpy");

 public:
  Buffer() = default;
  explicit Buffer(int64_t size) { resize(size); }  // zeros
  Buffer(Buffer&& other) { *this = static_cast<Buffer&&>(other); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  Buffer& operator=(Buffer&& other) {
    swap(data_, other.data_);
    swap(size_, other.size_);
    swap(capacity_, other.capacity_);
    return *this;
  }
  ~Buffer() { deallocate(data_); }

  // Elements that the buffer never had before are zero.
  void resize(int64_t size) {
    const int64_t bytes = size * static_cast<int64_t>(sizeof(T));
    if (bytes > capacity_) data_ = static_cast<T*>(reallocate(data_, &capacity_, bytes));
    size_ = size;
  }
  // Of a buffer that is empty, and then written to as a whole.
  void resize_unset(int64_t size) {
    const int64_t bytes = size * static_cast<int64_t>(sizeof(T));
    if (bytes > capacity_) data_ = static_cast<T*>(reallocate(data_, &capacity_, bytes, false));
    size_ = size;
  }
  void reserve(int64_t size) {
    const int64_t before = size_;
    resize(size);
    size_ = before;
  }
  template <class From>
  void assign(const From* values, int64_t count) {
    resize_unset(count);
    if constexpr (__is_same(From, T)) {
      if (count > 0) std::memcpy(data_, values, static_cast<size_t>(count) * sizeof(T));
    } else {
      for (int64_t i = 0; i < count; ++i) data_[i] = static_cast<T>(values[i]);
    }
  }
  void fill(int64_t size, T value) {
    resize(size);
    for (int64_t i = 0; i < size; ++i) data_[i] = value;
  }
  void push_back(T value) {
    resize(size_ + 1);
    data_[size_ - 1] = value;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  T& operator[](int64_t i) { return data_[i]; }
  const T& operator[](int64_t i) const { return data_[i]; }
  int64_t size() const { return size_; }
  int64_t bytes() const { return capacity_; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& back() { return data_[size_ - 1]; }
  const T& back() const { return data_[size_ - 1]; }

 private:
  T* data_ = nullptr;
  int64_t size_ = 0;
  int64_t capacity_ = 0;  // bytes
};

// Memory of this thread, for what is made and thrown away again and again: what is new to a process takes longer to write
// to than to compute. For one user at a time; what it holds at first is what the one before has left.
template <class Memory>
class Kept {
 public:
  Kept() : memory_(own()) {}
  ~Kept() {
    if (memory_.bytes() > kMost) memory_ = Memory();
  }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

  Memory* operator->() { return &memory_; }
  Memory& operator*() { return memory_; }

 private:
  static constexpr int64_t kMost = 1 << 20;

  static Memory& own() {
    static thread_local Memory memory;
    return memory;
  }

  Memory& memory_;
};

}  // namespace polyphase
