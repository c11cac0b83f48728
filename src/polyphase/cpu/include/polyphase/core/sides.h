// Sizes of images that torchvision's `Resize` makes of others, as it rounds.
#pragma once

#include <cstdint>

namespace polyphase {

// Makes the shorter side, or the longer one, `wanted` pixels long, and the other in proportion: size is (height, width).
// limit: of the longer side, 0 for none; for shorter sides alone.
inline void resize_side(bool is_longer, int64_t wanted, int64_t limit, int64_t* size) {
  // As Python has int(size * of / by).
  const auto scaled = [](int64_t size, int64_t of, int64_t by) {
    return static_cast<int64_t>(static_cast<double>(size * of) / static_cast<double>(by));
  };
  const int longer_axis = size[1] <= size[0] ? 0 : 1;
  const int64_t longer = size[longer_axis], shorter = size[1 - longer_axis];
  int64_t new_longer = is_longer ? wanted : scaled(wanted, longer, shorter);
  int64_t new_shorter = is_longer ? scaled(wanted, shorter, longer) : wanted;
  if (!is_longer && limit > 0 && new_longer > limit) {
    new_shorter = scaled(limit, new_shorter, new_longer);
    new_longer = limit;
  }
  size[longer_axis] = new_longer;
  size[1 - longer_axis] = new_shorter;
}

}  // namespace polyphase
