// What generated code does to rows of values: the arithmetic around sampling.
#pragma once

#include "polyphase/core/abi.h"

namespace polyphase {

// What a pointwise row function may read besides its values.
struct RowOperands {
  const void* vectors[kMaxOperands];  // planar: the element of this row's channel; else one for each element of the row
  const void* tensors[kMaxOperands];  // one element for each element of the row
  const float* reciprocals[kMaxOperands];  // where not planar: those of a vector the program divides by; else null
  bool planar;  // a row is of one channel
};

// Runs a generated `loop<planar, fast>` over a row. A fast loop returns whether some quotient may be wrong: then the row is
// computed again, by true divisions.
template <class Function>
void row_by_loops(const typename Function::From* in, typename Function::To* out, int64_t n, const RowOperands& operands) {
  if (operands.planar) {
    const bool slow = !Function::kDividesFast || Function::template loop<true, true>(in, out, n, operands);
    if (slow) Function::template loop<true, false>(in, out, n, operands);
  } else {
    bool slow = !Function::kDividesFast;
    for (int v = 0; v < kMaxOperands; ++v) slow |= (Function::kDivisors >> v & 1) && operands.reciprocals[v] == nullptr;
    slow = slow || Function::template loop<false, true>(in, out, n, operands);
    if (slow) Function::template loop<false, false>(in, out, n, operands);
  }
}

// No arithmetic around the sampling.
template <class T>
struct Unchanged {
  using From = T;
  using To = T;
  static constexpr bool kIdentity = true;
  static constexpr uint32_t kDivisors = 0;
  static void row(const T*, T*, int64_t, const RowOperands&) {}
};

}  // namespace polyphase
