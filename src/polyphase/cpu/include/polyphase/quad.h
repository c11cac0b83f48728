// Four floats: a pixel of up to four channels, or four neighbours of a row.
#pragma once

#include <cstdint>
#include <cstring>

#include "polyphase/neon.h"

#if defined(__AVX2__)
#include "polyphase/intrinsics.h"
#endif

namespace polyphase {

struct Quad {
  typedef float Register __attribute__((vector_size(16)));
  typedef int32_t Bits __attribute__((vector_size(16)));
  typedef float Anywhere __attribute__((vector_size(16), aligned(1), may_alias));
  Register v;

  static Quad zero() { return {Register{}}; }
  static Quad load(const float* p) { return {*reinterpret_cast<const Anywhere*>(p)}; }
  static Quad load(const uint8_t* p) {
    uint32_t bytes;
    std::memcpy(&bytes, p, sizeof(bytes));
    return widened(bytes);
  }
  // Reads n elements and no more; the others are 0.
  static Quad load_first(const float* p, int n) {
    Quad result = zero();
    std::memcpy(&result.v, p, static_cast<size_t>(n) * sizeof(float));
    return result;
  }
  static Quad load_first(const uint8_t* p, int n) {
    uint32_t bytes = 0;
    std::memcpy(&bytes, p, static_cast<size_t>(n));
    return widened(bytes);
  }
  void store(float* p) const { *reinterpret_cast<Anywhere*>(p) = v; }

 private:
  static Quad widened(uint32_t bytes) {
#if defined(__AVX2__)
    return {_mm_cvtepi32_ps(_mm_cvtepu8_epi32(_mm_cvtsi32_si128(static_cast<int>(bytes))))};
#else
    const Bits four = {static_cast<int32_t>(bytes & 0xff), static_cast<int32_t>((bytes >> 8) & 0xff),
                       static_cast<int32_t>((bytes >> 16) & 0xff), static_cast<int32_t>(bytes >> 24)};
    return {__builtin_convertvector(four, Register)};
#endif
  }
};

inline Quad multiply_add(Quad a, Quad b, Quad c) {
#if defined(__FMA__)
  return {_mm_fmadd_ps(a.v, b.v, c.v)};
#elif defined(POLYPHASE_NEON)
  return {neon::multiply_add(a.v, b.v, c.v)};
#else
  return {a.v * b.v + c.v};
#endif
}
inline Quad multiply_add(Quad a, float b, Quad c) { return multiply_add(a, Quad{Quad::Register{b, b, b, b}}, c); }

// Element j of the i-th becomes element i of the j-th.
inline void transpose(Quad& p, Quad& q, Quad& r, Quad& s) {
  using Places = Quad::Bits;
  const Quad::Register a = __builtin_shuffle(p.v, q.v, Places{0, 4, 1, 5});
  const Quad::Register b = __builtin_shuffle(p.v, q.v, Places{2, 6, 3, 7});
  const Quad::Register c = __builtin_shuffle(r.v, s.v, Places{0, 4, 1, 5});
  const Quad::Register d = __builtin_shuffle(r.v, s.v, Places{2, 6, 3, 7});
  p.v = __builtin_shuffle(a, c, Places{0, 1, 4, 5});
  q.v = __builtin_shuffle(a, c, Places{2, 3, 6, 7});
  r.v = __builtin_shuffle(b, d, Places{0, 1, 4, 5});
  s.v = __builtin_shuffle(b, d, Places{2, 3, 6, 7});
}

}  // namespace polyphase
