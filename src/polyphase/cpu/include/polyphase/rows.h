// What generated code does to rows of values: the arithmetic around sampling.
#pragma once

#include "polyphase/abi.h"

namespace polyphase {

// What a pointwise row function may read besides its values.
struct RowOperands {
  const void* vectors[kMaxOperands];  // planar: at this row's channel; else one element for each element of the row
  const void* tensors[kMaxOperands];  // one element for each element of the row
  bool planar;
};

// No arithmetic around the sampling.
template <class T>
struct Unchanged {
  using From = T;
  using To = T;
  static constexpr bool kIdentity = true;
  static void row(const T*, T*, int64_t, const RowOperands&) {}
};

}  // namespace polyphase
