// Vectors of 16 bytes by the compiler's extension, on every other processor: `vector.h` says what they are.
#pragma once

#include <cstring>

#include "polyphase/core/standard.h"
#include "polyphase/simd/neon.h"
#include "polyphase/simd/quad.h"

namespace polyphase {

typedef int32_t TwoInts __attribute__((vector_size(8)));
typedef int32_t FourInts __attribute__((vector_size(16)));

// 16 bytes by the compiler's vector extension: SSE2, NEON, or plain code.
template <class T>
struct Vec {
  static constexpr int kLanes = 16 / sizeof(T);
  static constexpr int kWindow = 2 * kLanes;
  typedef T Register __attribute__((vector_size(16)));
  typedef T Anywhere __attribute__((vector_size(16), aligned(1), may_alias));
  using Index = Conditional<sizeof(T) == 4, FourInts, TwoInts>;

  Register v;

  static Vec zero() { return {Register{}}; }
  Vec plus(Vec other) const { return {v + other.v}; }
  static Vec broadcast(T x) {
    if constexpr (kLanes == 4) {
      return {Register{x, x, x, x}};
    } else {
      return {Register{x, x}};
    }
  }
  static Vec load(const T* p) { return {*reinterpret_cast<const Anywhere*>(p)}; }
  static Vec load_first(const T* p, int n) {
    Vec result = zero();
    std::memcpy(&result.v, p, n * sizeof(T));
    return result;
  }
  void store(T* p) const { *reinterpret_cast<Anywhere*>(p) = v; }
  void store_first(T* p, int n) const { std::memcpy(p, &v, n * sizeof(T)); }

  static Index load_index(const int32_t* p) {
    Index i;
    std::memcpy(&i, p, sizeof(i));
    return i;
  }
  static Index advance(Index i, int32_t by) { return i + by; }
#if defined(POLYPHASE_NEON)
  // Places of bytes: of element n, the four from 4 n on.
  static constexpr bool kPicks = sizeof(T) == 4;
  static constexpr int32_t place(int32_t element) { return kPicks ? element * 0x04040404 + 0x03020100 : element; }
  static Index further(Index places, int32_t by) { return places + (kPicks ? by * 0x04040404 : by); }
  static Vec pick(Vec low, Vec high, Index places) {
    using neon::Bytes16;
    return {reinterpret_cast<Register>(neon::pick(reinterpret_cast<Bytes16>(low.v), reinterpret_cast<Bytes16>(high.v),
                                                  reinterpret_cast<Bytes16>(places)))};
  }
  // Four lanes from the first of a list's places: there is room for no more.
  static Vec load_fours(const T* p, const int32_t* at, int) { return load(p + at[0]); }
#else
  static constexpr bool kPicks = false;
  static constexpr int32_t place(int32_t element) { return element; }
  static Index further(Index places, int32_t by) { return advance(places, by); }
#endif
  static Vec pick(const T* window, Index places) {
    if constexpr (kPicks) {
      return pick(load(window), load(window + kLanes), places);
    } else {
      return gather(window, places);
    }
  }
  // Written out: a loop over lanes goes through memory at -O1.
  static Vec gather(const T* p, Index i) {
    if constexpr (kLanes == 4) {
      return {Register{p[i[0]], p[i[1]], p[i[2]], p[i[3]]}};
    } else {
      return {Register{p[i[0]], p[i[1]]}};
    }
  }

#if defined(POLYPHASE_NEON)
  // What the positions of warps need, of floats. A mask is all bits of a lane, or none.
  using Mask = Index;
  Vec minus(Vec other) const { return {v - other.v}; }
  Vec distance(Vec other) const { return {neon::distance(v, other.v)}; }
  Vec lesser(Vec other) const { return {neon::lesser(v, other.v)}; }
  Vec greater(Vec other) const { return {neon::greater(v, other.v)}; }
  Vec abs() const { return {neon::absolute(v)}; }
  Mask at_most(Vec most) const { return v <= most.v; }
  // Numbers of positions that are no numbers: sums and products of them begin anew where they do not fit.
  static Index times(Index i, int32_t by) {
    return reinterpret_cast<Index>(reinterpret_cast<neon::Counts>(i) * static_cast<uint32_t>(by));
  }
  static Index greater(Index a, Index b) {
    return reinterpret_cast<Index>(neon::greater(reinterpret_cast<neon::Counts>(a), reinterpret_cast<neon::Counts>(b)));
  }
  static Mask within(Index i, int32_t last) { return reinterpret_cast<neon::Counts>(i) <= static_cast<uint32_t>(last); }
  static Mask both(Mask a, Mask b) { return a & b; }
  Mask between(Vec least, Vec most) const { return (v >= least.v) & (v < most.v); }
  static void store_index(Index i, int32_t* p) { neon::store(p, i); }
  static Index truncated(Vec x) { return __builtin_convertvector(x.v, Index); }
  static Vec of_index(Index i) { return {__builtin_convertvector(i, Register)}; }
  // Conversions are slow. In a float from 2^23 on, the last bit is 1: a number is added to the middle of such floats, and then
  // found, rounded, in the last bits. For numbers below 2^22.
  struct Rounded {
    static constexpr float kMiddle = 0x1.8p23f;
    Register sum;
    static Rounded of(Vec x) { return {x.v + kMiddle}; }
    Index index() const {
      return reinterpret_cast<Index>(reinterpret_cast<neon::Counts>(sum) - __builtin_bit_cast(uint32_t, kMiddle));
    }
    Vec value() const { return {sum - kMiddle}; }
  };
  Vec replaced(Mask mask, Vec by) const {
    return {reinterpret_cast<Register>((reinterpret_cast<Mask>(by.v) & mask) | (reinterpret_cast<Mask>(v) & ~mask))};
  }
  static Index sum(Index a, Index b) {
    return reinterpret_cast<Index>(reinterpret_cast<neon::Counts>(a) + reinterpret_cast<neon::Counts>(b));
  }
#else
  static Index sum(Index a, Index b) { return a + b; }
#endif

  struct Pair;
  static Pair gather_pairs(const T* p, Index i) { return {gather(p, i), gather(p + 1, i)}; }
  static Pair load_pairs(const T* p) { return unzipped(load(p), load(p + kLanes)); }
  static Pair unzipped(Vec low, Vec high);
  Vec where(Index condition) const { return kept(condition != 0); }

  // Of lanes whose bits are all the same.
  template <class Bits>
  static bool all(Bits lanes) {
#if defined(POLYPHASE_NEON)
    return neon::all(reinterpret_cast<neon::Ints>(lanes));
#else
    typedef int64_t Longs __attribute__((vector_size(16)));
    const Longs halves = reinterpret_cast<Longs>(lanes);
    return (halves[0] & halves[1]) == -1;
#endif
  }

  bool has_nan() const { return !all(v == v); }
  bool lies_between(Vec least, Vec most) const { return all((v >= least.v) & (v < most.v)); }
  Vec where_nonzero(Vec weight) const { return kept(weight.v != 0); }

 private:
  // Of lanes whose bits are all the same.
  template <class Bits>
  Vec kept(Bits lanes) const {
    return {reinterpret_cast<Register>(reinterpret_cast<Bits>(v) & lanes)};
  }
};

template <class T>
struct Vec<T>::Pair {
  Vec first, second;
};
template <class T>
inline typename Vec<T>::Pair Vec<T>::unzipped(Vec low, Vec high) {
  if constexpr (kLanes == 4) {
    return {{Register{low.v[0], low.v[2], high.v[0], high.v[2]}}, {Register{low.v[1], low.v[3], high.v[1], high.v[3]}}};
  } else {
    return {{Register{low.v[0], high.v[0]}}, {Register{low.v[1], high.v[1]}}};
  }
}

#if defined(POLYPHASE_NEON)
// Both of a lane by one load.
template <>
inline Vec<float>::Pair Vec<float>::gather_pairs(const float* p, Index i) {
  const auto two = [&](int a, int b) {
    neon::Doubles both;
    std::memcpy(&both, p + a, 8);
    std::memcpy(reinterpret_cast<char*>(&both) + 8, p + b, 8);
    return Vec{reinterpret_cast<Register>(both)};
  };
  return unzipped(two(i[0], i[1]), two(i[2], i[3]));
}

inline void transpose_fours(Vec<float>& p, Vec<float>& q, Vec<float>& r, Vec<float>& s) {
  Quad a = {p.v}, b = {q.v}, c = {r.v}, d = {s.v};
  transpose(a, b, c, d);
  p.v = a.v, q.v = b.v, r.v = c.v, s.v = d.v;
}
#endif

template <class T>
inline Vec<T> multiply_add(Vec<T> a, Vec<T> b, Vec<T> c) {
#if defined(POLYPHASE_NEON)
  return {neon::multiply_add(a.v, b.v, c.v)};
#else
  return {a.v * b.v + c.v};
#endif
}

}  // namespace polyphase
