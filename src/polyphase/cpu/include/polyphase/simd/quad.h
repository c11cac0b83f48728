// Four floats: a pixel of up to four channels, or four neighbours of a row. And four doubles.
#pragma once

#include <cstdint>
#include <cstring>

#include "polyphase/core/standard.h"
#include "polyphase/simd/neon.h"

#if defined(__AVX2__)
#include "polyphase/simd/intrinsics.h"
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

struct DoubleQuad {
  typedef double Register __attribute__((vector_size(32)));
  typedef double Anywhere __attribute__((vector_size(32), aligned(1), may_alias));
  Register v;

  static DoubleQuad zero() { return {Register{}}; }
  static DoubleQuad load(const double* p) { return {*reinterpret_cast<const Anywhere*>(p)}; }
  void store(double* p) const { *reinterpret_cast<Anywhere*>(p) = v; }
};

inline DoubleQuad multiply_add(DoubleQuad a, double b, DoubleQuad c) {
  const DoubleQuad::Register all = {b, b, b, b};
#if defined(__FMA__)
  return {_mm256_fmadd_pd(a.v, all, c.v)};
#else
  return {a.v * all + c.v};
#endif
}

inline void transpose(DoubleQuad& p, DoubleQuad& q, DoubleQuad& r, DoubleQuad& s) {
  const DoubleQuad::Register a = p.v, b = q.v, c = r.v, d = s.v;
  p.v = DoubleQuad::Register{a[0], b[0], c[0], d[0]};
  q.v = DoubleQuad::Register{a[1], b[1], c[1], d[1]};
  r.v = DoubleQuad::Register{a[2], b[2], c[2], d[2]};
  s.v = DoubleQuad::Register{a[3], b[3], c[3], d[3]};
}

template <class V>
using QuadOf = Conditional<sizeof(V) == sizeof(double), DoubleQuad, Quad>;

// Element j of the i-th becomes element i of the j-th. Compilers make permutations of two registers of such initialisers;
// but on ARM, where all four were just loaded, GCC makes 16 loads of one element instead.
inline void transpose(Quad& p, Quad& q, Quad& r, Quad& s) {
#if defined(POLYPHASE_NEON)
  neon::transpose(p.v, q.v, r.v, s.v);
#else
  const Quad::Register a = {p.v[0], q.v[0], p.v[1], q.v[1]}, b = {p.v[2], q.v[2], p.v[3], q.v[3]};
  const Quad::Register c = {r.v[0], s.v[0], r.v[1], s.v[1]}, d = {r.v[2], s.v[2], r.v[3], s.v[3]};
  p.v = Quad::Register{a[0], a[1], c[0], c[1]};
  q.v = Quad::Register{a[2], a[3], c[2], c[3]};
  r.v = Quad::Register{b[0], b[1], d[0], d[1]};
  s.v = Quad::Register{b[2], b[3], d[2], d[3]};
#endif
}

}  // namespace polyphase
