// Gradients most of whose rows are sums of nothing: all of the target is made 0 first, and those rows are not made.
#pragma once

#include <cstring>

#include "polyphase/core/abi.h"
#include "polyphase/core/cache.h"
#include "polyphase/core/rows.h"
#include "polyphase/core/standard.h"

namespace polyphase {

// Of gradients, where a pixel was not read.
inline bool is_sum_of_nothing(const Axis& axis, int64_t i) {
  return axis.taps != nullptr && axis.taps->begin[i] == axis.taps->begin[i + 1];
}

// Whether that is so, and 0 is stored as 0.
template <class Epilogue>
bool zeroes_target(const MapsCall& call) {
  using O = typename Epilogue::To;
  if (call.zeroed_bytes == 0 || call.vector_count + call.tensor_count > 0) return false;
  const typename Epilogue::From nothing = {};
  O stored = {};
  Epilogue::row(&nothing, &stored, 1, RowOperands());
  static constexpr uint8_t kNone[sizeof(O)] = {};
  return std::memcmp(&stored, kNone, sizeof(O)) == 0;
}

// Pages of the target.
inline void zero_pages(void* context, int64_t begin, int64_t end) {
  const MapsCall& call = *static_cast<const MapsCall*>(context);
  const int64_t first = begin * kPage, stop = min(end * kPage, call.zeroed_bytes);
  std::memset(static_cast<uint8_t*>(call.target) + first, 0, static_cast<size_t>(stop - first));
}

template <class Epilogue>
void zero_target(const MapsCall& call) {
  if (!zeroes_target<Epilogue>(call)) return;
  call.parallel((call.zeroed_bytes + kPage - 1) / kPage, call.threads, zero_pages, const_cast<MapsCall*>(&call));
}

}  // namespace polyphase
