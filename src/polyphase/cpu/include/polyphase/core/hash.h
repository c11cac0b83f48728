// What is found again by its bytes.
#pragma once

#include <cstdint>
#include <cstring>

namespace polyphase {

// Of words of eight bytes; `hash`: that of what comes before them.
inline uint64_t hash_of(const void* data, int64_t words, uint64_t hash = 0) {
  for (int64_t w = 0; w < words; ++w) {
    uint64_t word;
    std::memcpy(&word, static_cast<const uint8_t*>(data) + w * sizeof(word), sizeof(word));
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace polyphase
