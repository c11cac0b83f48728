// What threads of all blocks add to at once. On the host, where one runs after the other, plain sums.
#pragma once

#include <cstdint>

namespace polyphase {

#ifdef __CUDACC__

template <class T>
inline void add_to(T* sum, T value) {
  atomicAdd(sum, value);
}
inline void add_to(int64_t* sum, int64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(sum), static_cast<unsigned long long>(value));
}
inline void raise_to(uint64_t* most, uint64_t value) { atomicMax(reinterpret_cast<unsigned long long*>(most), value); }

#else

template <class T>
inline void add_to(T* sum, T value) {
  *sum += value;
}
inline void raise_to(uint64_t* most, uint64_t value) { *most = *most < value ? value : *most; }

#endif

}  // namespace polyphase
