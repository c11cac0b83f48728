// Where the outputs of a row lie, what their arithmetic reads besides, and how one is stored.
#pragma once

#include "polyphase/core/scalar.h"
#include "polyphase/cuda/call.h"

namespace polyphase {

// What is seldom done is compiled once, wherever it is called: a kernel builds sooner.
#ifdef __CUDACC__
#define POLYPHASE_SELDOM __noinline__
#else
#define POLYPHASE_SELDOM inline
#endif

// What no kernel writes: it need not be read again behind a store.
template <class T>
inline T once(const T* from) {
  return *from;
}
#ifdef __CUDACC__
inline float once(const float* from) { return __ldg(from); }
inline double once(const double* from) { return __ldg(from); }
#endif

struct Divided {
  int64_t quotient, remainder;
};

// Of numbers that are not negative. A division of 64 bits takes some hundred instructions.
POLYPHASE_SELDOM Divided divided(int64_t number, int64_t by) {
  if ((number | by) >> 32 == 0) {
    const auto quotient = static_cast<uint32_t>(number) / static_cast<uint32_t>(by);
    return {quotient, number - int64_t(quotient) * by};
  }
  return {number / by, number % by};
}

// The place of a row, or of a plane.
struct Place {
  int64_t source = 0;
  int64_t target = 0;
  int64_t channel = 0;
  int32_t border = 0;
  int64_t tensors[at_least_one(kTensors)] = {};
};

inline int32_t greater(int32_t a, int32_t b) { return a > b ? a : b; }

// Along an axis whose map is index-only or the identity.
inline int64_t index_at(const Axis& axis, int64_t i) { return axis.first == nullptr ? i : axis.first[i]; }
inline int32_t border_at(const Axis& axis, int64_t i) { return axis.border == nullptr ? 0 : axis.border[i]; }

inline Place plane_place(const MapsCall& call, int64_t plane) {
  Place place;
  place.target = call.target_origin;
  place.source = call.source_origin;
  for (int t = 0; t < kTensors; ++t) place.tensors[t] = call.tensor_strides[t].origin;
#pragma unroll
  for (int a = kOuter - 1; a >= 0; --a) {
    const Axis& axis = call.outer[a];
    int64_t i = plane;
    if (a > 0) {
      const Divided at = divided(plane, axis.out_size);
      i = at.remainder;
      plane = at.quotient;
    }
    place.source += index_at(axis, i) * axis.in_stride;
    place.target += i * axis.out_stride;
    place.border = greater(place.border, border_at(axis, i));
    if (a == call.channel_axis) place.channel = i;
    for (int t = 0; t < kTensors; ++t) place.tensors[t] += i * call.tensor_strides[t].outer[a];
  }
  return place;
}

// Of row y in a plane; what it is read from is left to the kernel.
inline Place row_place(const MapsCall& call, Place place, int64_t y) {
  place.target += y * call.y.out_stride;
  for (int t = 0; t < kTensors; ++t) place.tensors[t] += y * call.tensor_strides[t].y;
  return place;
}

// Element `c` of pixel x in a row, which has less than 2^31 elements.
struct Column {
  int32_t x, c;
};

inline Column column_at(const MapsCall& call, int32_t element) {
  if (call.channels == 1) return {element, 0};
  const auto channels = static_cast<int32_t>(call.channels);
  const int32_t x = element / channels;
  return {x, element - x * channels};
}

inline int64_t channel_of(const MapsCall& call, int64_t of_plane, int64_t c) {
  return call.channel_axis < 0 ? c : of_plane;
}

// What is stored for a sum. kBordered: the program has constant borders; `border` is the output's, 0 for none.
template <class Store, bool kBordered>
inline typename Store::To finished(const MapsCall& call, const Place& row, int64_t x, int64_t c,
                                   int32_t border, typename Store::From sum) {
  if (kBordered && border != 0) {
    const uint8_t* value = &call.borders[(border - 1) * call.border_stride];
    if (border >= call.first_stored) return *reinterpret_cast<const typename Store::To*>(value);
    sum = *reinterpret_cast<const typename Store::From*>(value);
  }
  int64_t offsets[at_least_one(kTensors)];
  for (int t = 0; t < kTensors; ++t) {
    offsets[t] = row.tensors[t] + x * call.tensor_strides[t].x + c * call.tensor_strides[t].channel;
  }
  return Store::apply(sum, call, channel_of(call, row.channel, c), offsets);
}

}  // namespace polyphase
