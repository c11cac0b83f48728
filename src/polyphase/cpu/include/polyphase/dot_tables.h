// What byte_dots.h hands to the instruction sets.
#pragma once

#include <cstdint>
#include <cstring>

#include "polyphase/abi.h"
#include "polyphase/standard.h"

namespace polyphase {

// How bytes are picked from a chunk of interleaved pixels, and the results put side by side.
struct DotTables {
  uint8_t shuffle[64];
  uint8_t interleave[64];
};

}  // namespace polyphase
