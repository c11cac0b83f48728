// As in <algorithm>, which takes a tenth of a second to be read, by every kernel.
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

}  // namespace polyphase
