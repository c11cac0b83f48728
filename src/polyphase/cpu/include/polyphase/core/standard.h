// What is used of the standard library's <algorithm>, <type_traits> and <utility>: reading these takes longer than
// compiling what most kernels do with them.
#pragma once

namespace polyphase {

template <class T>
constexpr const T& min(const T& a, const T& b) {
  return b < a ? b : a;
}

template <class T>
constexpr const T& max(const T& a, const T& b) {
  return a < b ? b : a;
}

template <class T>
constexpr const T& clamp(const T& x, const T& least, const T& most) {
  return x < least ? least : most < x ? most : x;
}

template <class T>
constexpr T&& move(T& x) {
  return static_cast<T&&>(x);
}

template <class T>
void swap(T& a, T& b) {
  T kept = move(a);
  a = move(b);
  b = move(kept);
}

// A number as a type, known at compile time.
template <int kValue>
struct Constant {
  constexpr operator int() const { return kValue; }
};

template <bool kCondition, class Then, class Else>
struct ConditionalOf {
  using Type = Then;
};
template <class Then, class Else>
struct ConditionalOf<false, Then, Else> {
  using Type = Else;
};
template <bool kCondition, class Then, class Else>
using Conditional = typename ConditionalOf<kCondition, Then, Else>::Type;

// Stands for what a kernel has no use for.
struct Unused {
  template <class... Anything>
  explicit Unused(const Anything&...) {}
  bool can() const { return false; }
};

}  // namespace polyphase
