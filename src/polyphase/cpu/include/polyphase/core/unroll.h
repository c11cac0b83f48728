// A small run-time number as a compile-time one, so that the loop it bounds is unrolled. The horizontal passes gain much
// by it.
#pragma once

#include "polyphase/core/abi.h"
#include "polyphase/core/standard.h"

namespace polyphase {

// Calls function(Constant<n>) where kLeast <= n <= kMost, else function(Constant<0>): 0 stands for any number.
template <int kLeast, int kMost, class Function>
inline void with_constant(int n, const Function& function) {
  if constexpr (kMost < kLeast) {
    function(Constant<0>());
  } else if (n == kMost) {
    function(Constant<kMost>());
  } else {
    with_constant<kLeast, kMost - 1>(n, function);
  }
}

// Calls function(Constant<i>) for all i below kCount. An array of that many vectors, indexed by i, then stays in registers;
// indexed in a loop it lies in memory at -O1, even if the loop is unrolled by a pragma.
template <int kCount, class Function>
POLYPHASE_BLOCK void repeat(const Function& function) {
  if constexpr (kCount > 0) {
    repeat<kCount - 1>(function);
    function(Constant<kCount - 1>());
  }
}

}  // namespace polyphase
