// A small run-time number as a compile-time one: the loop it bounds is unrolled, which is worth a quarter of the time of
// the horizontal passes.
#pragma once

#include "polyphase/abi.h"
#include "polyphase/standard.h"

namespace polyphase {

// function(Constant<n>) for kLeast <= n <= kMost; for any other n with 0, which stands for "any".
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

// function(Constant<i>) for all i below kCount. Arrays of that many vectors then are registers.
template <int kCount, class Function>
POLYPHASE_BLOCK void repeat(const Function& function) {
  if constexpr (kCount > 0) {
    repeat<kCount - 1>(function);
    function(Constant<kCount - 1>());
  }
}

}  // namespace polyphase
