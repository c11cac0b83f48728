// A vector register that converts what it rounds.
#pragma once

namespace polyphase {

template <class T>
struct Vec;

// Whole numbers that are nearest to a vector's (ties to even), as integers and as floats. What is no integer is less than 0.
template <class Lanes>
struct RoundedByConversion {
  using Index = typename Lanes::Index;
  Index whole;
  static RoundedByConversion of(Lanes x) { return {Lanes::nearest(x)}; }
  Index index() const { return whole; }
  Lanes value() const { return Lanes::of_index(whole); }
};

}  // namespace polyphase
