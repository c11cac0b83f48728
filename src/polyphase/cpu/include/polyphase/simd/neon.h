// What every 64 bit ARM has beyond the compiler's vector extension, instruction by instruction: <arm_neon.h> takes long to
// read.
#pragma once

#include <cstdint>

#if defined(__aarch64__) && !defined(__AARCH64EB__) && !defined(POLYPHASE_PLAIN)
#define POLYPHASE_NEON 1

namespace polyphase::neon {

typedef float Floats __attribute__((vector_size(16)));
typedef double Doubles __attribute__((vector_size(16)));
typedef uint8_t Bytes16 __attribute__((vector_size(16)));
typedef int16_t Shorts __attribute__((vector_size(16)));
typedef int32_t Ints __attribute__((vector_size(16)));
typedef uint32_t Counts __attribute__((vector_size(16)));

// Anywhere in memory.
template <class Register>
inline Register load(const void* p) {
  typedef Register Unaligned __attribute__((aligned(1), may_alias));
  return *static_cast<const Unaligned*>(p);
}
template <class Register>
inline void store(void* p, Register v) {
  typedef Register Unaligned __attribute__((aligned(1), may_alias));
  *static_cast<Unaligned*>(p) = v;
}

inline Floats multiply_add(Floats a, Floats b, Floats c) {
  asm("fmla %0.4s, %1.4s, %2.4s" : "+w"(c) : "w"(a), "w"(b));
  return c;
}
inline Doubles multiply_add(Doubles a, Doubles b, Doubles c) {
  asm("fmla %0.2d, %1.2d, %2.2d" : "+w"(c) : "w"(a), "w"(b));
  return c;
}
// c - a * b.
inline Doubles multiply_subtract(Doubles a, Doubles b, Doubles c) {
  asm("fmls %0.2d, %1.2d, %2.2d" : "+w"(c) : "w"(a), "w"(b));
  return c;
}
// A number where one of both is.
inline Doubles greater(Doubles a, Doubles b) {
  Doubles result;
  asm("fmaxnm %0.2d, %1.2d, %2.2d" : "=w"(result) : "w"(a), "w"(b));
  return result;
}
inline Doubles lesser(Doubles a, Doubles b) {
  Doubles result;
  asm("fminnm %0.2d, %1.2d, %2.2d" : "=w"(result) : "w"(a), "w"(b));
  return result;
}
inline Doubles truncated(Doubles v) {
  Doubles whole;
  asm("frintz %0.2d, %1.2d" : "=w"(whole) : "w"(v));
  return whole;
}

// a times lane kLane of b.
template <int kLane>
inline Floats multiply_lane(Floats a, Floats b) {
  Floats product;
  asm("fmul %0.4s, %1.4s, %2.s[%3]" : "=w"(product) : "w"(a), "w"(b), "i"(kLane));
  return product;
}
template <int kLane>
inline Floats multiply_add_lane(Floats a, Floats b, Floats c) {
  asm("fmla %0.4s, %1.4s, %2.s[%3]" : "+w"(c) : "w"(a), "w"(b), "i"(kLane));
  return c;
}

// with_lane: lane kTo becomes lane kFrom of the other. with_low_half: lanes 2 and 3 become lanes 0 and 1 of the other.
// rotated: lane i becomes lane (i + kFirst) % 4.
template <int kTo, int kFrom>
inline Floats with_lane(Floats v, Floats other) {
  asm("ins %0.s[%2], %1.s[%3]" : "+w"(v) : "w"(other), "i"(kTo), "i"(kFrom));
  return v;
}
inline Floats with_low_half(Floats v, Floats other) {
  asm("ins %0.d[1], %1.d[0]" : "+w"(v) : "w"(other));
  return v;
}
template <int kFirst>
inline Floats rotated(Floats v) {
  Floats turned;
  asm("ext %0.16b, %1.16b, %1.16b, %2" : "=w"(turned) : "w"(v), "i"(4 * kFirst));
  return turned;
}

// Lane j of the i-th becomes lane i of the j-th.
inline void transpose(Floats& p, Floats& q, Floats& r, Floats& s) {
  Floats even_pq, odd_pq, even_rs, odd_rs;
  asm("trn1 %0.4s, %1.4s, %2.4s" : "=w"(even_pq) : "w"(p), "w"(q));
  asm("trn2 %0.4s, %1.4s, %2.4s" : "=w"(odd_pq) : "w"(p), "w"(q));
  asm("trn1 %0.4s, %1.4s, %2.4s" : "=w"(even_rs) : "w"(r), "w"(s));
  asm("trn2 %0.4s, %1.4s, %2.4s" : "=w"(odd_rs) : "w"(r), "w"(s));
  asm("trn1 %0.2d, %1.2d, %2.2d" : "=w"(p) : "w"(even_pq), "w"(even_rs));
  asm("trn1 %0.2d, %1.2d, %2.2d" : "=w"(q) : "w"(odd_pq), "w"(odd_rs));
  asm("trn2 %0.2d, %1.2d, %2.2d" : "=w"(r) : "w"(even_pq), "w"(even_rs));
  asm("trn2 %0.2d, %1.2d, %2.2d" : "=w"(s) : "w"(odd_pq), "w"(odd_rs));
}

// Byte i is byte places[i] of a table of 16 or 32; 0 for a place beyond it.
inline Bytes16 pick(Bytes16 table, Bytes16 places) {
  Bytes16 picked;
  asm("tbl %0.16b, {%1.16b}, %2.16b" : "=w"(picked) : "w"(table), "w"(places));
  return picked;
}
inline Bytes16 pick(Bytes16 low, Bytes16 high, Bytes16 places) {
  register Bytes16 first asm("v30") = low;  // a table is consecutive registers
  register Bytes16 second asm("v31") = high;
  Bytes16 picked;
  asm("tbl %0.16b, {%1.16b, %2.16b}, %3.16b" : "=w"(picked) : "w"(first), "w"(second), "w"(places));
  return picked;
}

// sum[i] + a[i] * b[i], of the first four 16 bit lanes or of the last four; or + a[i] * b[kLane].
inline Ints add_products_low(Ints sum, Shorts a, Shorts b) {
  asm("smlal %0.4s, %1.4h, %2.4h" : "+w"(sum) : "w"(a), "w"(b));
  return sum;
}
inline Ints add_products_high(Ints sum, Shorts a, Shorts b) {
  asm("smlal2 %0.4s, %1.8h, %2.8h" : "+w"(sum) : "w"(a), "w"(b));
  return sum;
}

template <int kLane>
inline Ints add_products_low(Ints sum, Shorts a, Shorts b) {
  asm("smlal %0.4s, %1.4h, %2.h[%3]" : "+w"(sum) : "w"(a), "x"(b), "i"(kLane));
  return sum;
}
template <int kLane>
inline Ints add_products_high(Ints sum, Shorts a, Shorts b) {
  asm("smlal2 %0.4s, %1.8h, %2.h[%3]" : "+w"(sum) : "w"(a), "x"(b), "i"(kLane));
  return sum;
}

// Eight bytes, the first or the last, as 16 bit lanes.
inline Shorts widened_low(Bytes16 v) {
  Shorts wide;
  asm("ushll %0.8h, %1.8b, #0" : "=w"(wide) : "w"(v));
  return wide;
}
inline Shorts widened_high(Bytes16 v) {
  Shorts wide;
  asm("ushll2 %0.8h, %1.16b, #0" : "=w"(wide) : "w"(v));
  return wide;
}

// 16 sums one after the other, saturated to 0..255.
inline Bytes16 narrowed(Ints p, Ints q, Ints r, Ints s) {
  Shorts first, second;
  Bytes16 bytes;
  asm("sqxtn %0.4h, %1.4s\n\tsqxtn2 %0.8h, %2.4s" : "=&w"(first) : "w"(p), "w"(q));
  asm("sqxtn %0.4h, %1.4s\n\tsqxtn2 %0.8h, %2.4s" : "=&w"(second) : "w"(r), "w"(s));
  asm("sqxtun %0.8b, %1.8h\n\tsqxtun2 %0.16b, %2.8h" : "=&w"(bytes) : "w"(first), "w"(second));
  return bytes;
}

// Lanes 0 and 1, 2 and 3 added, of one register after the other.
inline Ints added_pairs(Ints a, Ints b) {
  Ints sums;
  asm("addp %0.4s, %1.4s, %2.4s" : "=w"(sums) : "w"(a), "w"(b));
  return sums;
}

// Rounded to the nearest integers (ties to even). What no integer is saturates; NaN becomes 0.
inline Ints nearest(Floats v) {
  Ints whole;
  asm("fcvtns %0.4s, %1.4s" : "=w"(whole) : "w"(v));
  return whole;
}
inline Floats absolute(Floats v) {
  Floats magnitude;
  asm("fabs %0.4s, %1.4s" : "=w"(magnitude) : "w"(v));
  return magnitude;
}
inline Floats distance(Floats a, Floats b) {
  Floats apart;
  asm("fabd %0.4s, %1.4s, %2.4s" : "=w"(apart) : "w"(a), "w"(b));
  return apart;
}
// The lesser and the greater; NaN where one of them is.
inline Floats lesser(Floats a, Floats b) {
  Floats least;
  asm("fmin %0.4s, %1.4s, %2.4s" : "=w"(least) : "w"(a), "w"(b));
  return least;
}
inline Floats greater(Floats a, Floats b) {
  Floats most;
  asm("fmax %0.4s, %1.4s, %2.4s" : "=w"(most) : "w"(a), "w"(b));
  return most;
}
inline Counts greater(Counts a, Counts b) {
  Counts most;
  asm("umax %0.4s, %1.4s, %2.4s" : "=w"(most) : "w"(a), "w"(b));
  return most;
}

// The even 32 bit lanes of one register after the other, and the odd ones.
template <class Register>
inline Register even_lanes(Register a, Register b) {
  Register lanes;
  asm("uzp1 %0.4s, %1.4s, %2.4s" : "=w"(lanes) : "w"(a), "w"(b));
  return lanes;
}
template <class Register>
inline Register odd_lanes(Register a, Register b) {
  Register lanes;
  asm("uzp2 %0.4s, %1.4s, %2.4s" : "=w"(lanes) : "w"(a), "w"(b));
  return lanes;
}

// Eight bytes from each of two places.
template <class Register>
inline Register load_halves(const void* low, const void* high) {
  typedef uint64_t Anywhere __attribute__((aligned(1), may_alias));
  Register both;
  asm("ldr %d0, %1" : "=w"(both) : "m"(*static_cast<const Anywhere*>(low)));
  asm("ld1 {%0.d}[1], %1" : "+w"(both) : "Q"(*static_cast<const Anywhere*>(high)));
  return both;
}

// Whether all bits are set, of lanes whose bits are all the same.
inline bool all(Ints lanes) {
  Ints least;
  asm("uminp %0.4s, %1.4s, %1.4s" : "=w"(least) : "w"(lanes));
  typedef int64_t Longs __attribute__((vector_size(16)));
  return reinterpret_cast<Longs>(least)[0] == -1;
}

}  // namespace polyphase::neon

#endif
