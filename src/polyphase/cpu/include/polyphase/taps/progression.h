#pragma once

#include <cstdint>

#include "polyphase/core/abi.h"

namespace polyphase {

// Of an axis that is cropped and flipped, output i is pixel first + step * i.
struct Progression {
  int64_t first, step, size;

  static Progression whole(int64_t size) { return {0, 1, size}; }

  // False, and nothing is done, where a step does more.
  bool then(const Step& next) {
    if (next.kind == Step::kFlip) {
      first += step * (size - 1);
      step = -step;
      return true;
    }
    if (next.kind != Step::kSlice) return false;
    first += step * next.a;
    step *= next.c;
    size = (next.b - next.a + next.c - 1) / next.c;
    return true;
  }
};

}  // namespace polyphase
