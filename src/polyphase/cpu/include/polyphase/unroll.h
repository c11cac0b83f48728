// A small run-time number as a compile-time one: the loop it bounds is unrolled, which is worth a quarter of the time of
// the horizontal passes.
#pragma once

#include <type_traits>

namespace polyphase {

// function(std::integral_constant<int, n>) for 1 <= n <= kMost; for any other n with 0, which stands for "any".
template <int kMost, class Function>
inline void with_constant(int n, const Function& function) {
  if constexpr (kMost == 0) {
    function(std::integral_constant<int, 0>());
  } else if (n == kMost) {
    function(std::integral_constant<int, kMost>());
  } else {
    with_constant<kMost - 1>(n, function);
  }
}

}  // namespace polyphase
