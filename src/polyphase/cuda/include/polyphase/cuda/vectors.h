// Neighbouring elements, read and written at once.
#pragma once

#include <cstdint>

namespace polyphase {

// A value of 16 bytes that is only moved.
struct alignas(16) Bytes16 {
  uint64_t items[2];
};

template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Vector {
  T items[kCount];
};

// kAtOnce: `from` is a multiple of the vector's size, and all elements are there. Else the first `count` are read, and the
// last of them stands for the others.
template <bool kAtOnce, int kCount, class T>
inline Vector<T, kCount> read(const T* from, int64_t count) {
  if (kAtOnce) return *reinterpret_cast<const Vector<T, kCount>*>(from);
  Vector<T, kCount> values;
#pragma unroll
  for (int i = 0; i < kCount; ++i) values.items[i] = from[i < count ? i : count - 1];
  return values;
}

}  // namespace polyphase
