// Neighbouring elements, read and written at once.
#pragma once

#include "polyphase/core/scalar.h"

namespace polyphase {

template <bool kFirst, class First, class Second>
struct Chosen {
  using Type = First;
};
template <class First, class Second>
struct Chosen<false, First, Second> {
  using Type = Second;
};

// A value of 16 bytes that is only moved.
struct alignas(16) Bytes16 {
  uint64_t items[2];
};

constexpr bool is_power_of_two(int count) { return (count & (count - 1)) == 0; }

template <class T, int kCount>
struct alignas(is_power_of_two(kCount) ? sizeof(T) * kCount : sizeof(T)) Vector {
  T items[kCount];
};

// Elements that are read now and used later. Small ones are kept as words: taken apart where they are read, they would
// have to be there at once.
template <class T, int kCount>
struct Kept {
  static constexpr bool kWords = sizeof(T) < 4 && sizeof(T) * kCount % 4 == 0;
  using Memory = typename Chosen<kWords, Vector<uint32_t, kWords ? sizeof(T) * kCount / 4 : 1>, Vector<T, kCount>>::Type;
  Memory memory;

  void read(const T* from) { memory = *reinterpret_cast<const Memory*>(from); }
  T operator[](int i) const { return __builtin_bit_cast(Elements, memory).items[i]; }

 private:
  using Elements = Vector<T, kCount>;
};

// Rounded to 16 bits, two at a time.
template <class To, int kCount>
inline Vector<To, kCount> rounded_pairs(const float (&values)[kCount]) {
  Vector<uint32_t, kCount / 2> pairs;
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) pairs.items[i] = pair_bits<To>(values[2 * i], values[2 * i + 1]);
  using Values = Vector<To, kCount>;
  return __builtin_bit_cast(Values, pairs);
}

// How a thread's outputs lie in memory: apart, side by side, or so that they can be stored at once.
enum Stores { kApart, kBeside, kAtOnce };

// kAligned: `from` is a multiple of the vector's size, and all elements are there. Else the first `count` are read, and the
// last of them stands for the others.
template <bool kAligned, int kCount, class T>
inline Vector<T, kCount> read(const T* from, int64_t count) {
  if (kAligned) return *reinterpret_cast<const Vector<T, kCount>*>(from);
  Vector<T, kCount> values;
#pragma unroll
  for (int i = 0; i < kCount; ++i) values.items[i] = from[i < count ? i : count - 1];
  return values;
}

// Of what is not read again soon: it leaves the cache before what was read.
template <class T, int kCount>
inline void store_once(Vector<T, kCount>* to, const Vector<T, kCount>& values) {
#ifdef __CUDACC__
  using Few = typename Chosen<sizeof(T) * kCount == 8, uint2, uint32_t>::Type;
  using Words = typename Chosen<sizeof(T) * kCount == 16, uint4, Few>::Type;
  static_assert(sizeof(Words) == sizeof(Vector<T, kCount>), "4, 8 or 16 bytes");
  __stcs(reinterpret_cast<Words*>(to), __builtin_bit_cast(Words, values));
#else
  *to = values;
#endif
}

// Bytes of two words, low then high, from byte `shift` / 8 on; shift is a multiple of 8, and counts modulo 32.
inline uint32_t from_byte(uint32_t low, uint32_t high, uint32_t shift) {
#ifdef __CUDACC__
  return __funnelshift_r(low, high, shift);
#else
  return static_cast<uint32_t>((uint64_t(high) << 32 | low) >> (shift & 31));
#endif
}

}  // namespace polyphase
