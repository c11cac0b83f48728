// The dimensions of a Request, and what follows the record.
#pragma once

#include <cstring>

#include "polyphase/launch/geometry.h"
#include "polyphase/launch/request.h"

namespace polyphase {

// More weighted axes, or dimensions that cannot be joined, than a kernel walks along.
struct TooManyDimensions {};

// What follows a Request.
struct Tail {
  const Step* steps;
  const uint8_t* borders;
  const uint8_t* numbers;
  const int64_t* tensor_strides;  // of tensor t along dimension d: at t * kMaxDimensions + d
};

// A request of so many bytes.
inline Tail read_request(const uint8_t* data, int64_t size, Request& request) {
  if (size < static_cast<int64_t>(sizeof(request))) throw BadCall{"a request that is cut off"};
  std::memcpy(&request, data, sizeof(request));
  if (request.rank > kMaxDimensions || request.map_count > request.rank || request.vector_count > kMaxOperands ||
      request.tensor_count > kMaxOperands) {
    throw BadCall{"more dimensions, maps or operands than a request has room for"};
  }
  const int64_t steps = request.map_count > 0 ? request.last_step[request.map_count - 1] : 0;
  const uint8_t* steps_at = data + sizeof(request);
  const uint8_t* borders_at = steps_at + steps * static_cast<int64_t>(sizeof(Step));
  const uint8_t* numbers_at = borders_at + request.border_size;
  const uint8_t* strides_at = numbers_at + request.number_count * static_cast<int64_t>(sizeof(double));
  const int64_t strides = request.tensor_count * kMaxDimensions * static_cast<int64_t>(sizeof(int64_t));
  if (data + size != strides_at + strides) throw BadCall{"a request of another size than it says"};
  return {reinterpret_cast<const Step*>(steps_at), borders_at, numbers_at, reinterpret_cast<const int64_t*>(strides_at)};
}

// Whether outputs may be sums, or borders of a map's adjoint.
inline bool may_be_weighted(const Dimension& d, bool transposed) {
  for (int64_t s = 0; s < d.step_count; ++s) {
    if (d.steps[s].kind <= Step::kArea) return true;
    if (transposed && d.steps[s].kind != Step::kFlip) return true;
  }
  return false;
}

inline bool comes_first(const Dimension& d) {
  for (int64_t s = 0; s < d.step_count; ++s) {
    if (d.steps[s].kind == Step::kResize && (d.steps[s].d & Step::kFirst) != 0) return true;
  }
  return false;
}

// Of maps. Where they are cut into blocks is left out.
inline void read_dimensions(const Request& request, const Tail& tail, Dimensions& dimensions) {
  if (request.rank >= Dimensions::kMost) throw TooManyDimensions();
  const int64_t first_mapped = request.rank - request.map_count;
  int64_t first_step = 0;
  for (int64_t i = 0; i < request.rank; ++i) {
    const int64_t last_step = i < first_mapped ? 0 : request.last_step[i - first_mapped];
    Dimension d = Dimension::plain();
    d.in_size = request.in_size[i];
    d.out_size = request.out_size[i];
    d.in_stride = request.in_stride[i];
    d.out_stride = request.out_stride[i];
    d.steps = tail.steps + first_step;
    d.step_count = last_step - first_step;
    d.weighted = may_be_weighted(d, request.transposed != 0);
    d.first = comes_first(d);
    d.channels = request.vector_count > 0 && i == request.channel_dimension;
    for (int64_t t = 0; t < request.tensor_count; ++t) d.tensor_strides[t] = tail.tensor_strides[t * kMaxDimensions + i];
    if (!d.mapped() && d.in_size != d.out_size) throw BadCall{"an axis without a map changes its size"};
    dimensions.push_back(d);
    first_step = last_step;
  }
}

}  // namespace polyphase
