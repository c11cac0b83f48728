// torch's generator of random numbers on the CPU, continued from its own state: a Mersenne Twister, and the numbers that
// torch makes of its words. Everything is to the bit, the state that is left included.
#pragma once

#include <cmath>
#include <cstdint>

namespace polyphase {

// `torch.Generator.get_state()`, byte for byte.
struct GeneratorState {
  static constexpr int32_t kWords = 624;

  uint64_t seed;
  int32_t left;  // words until the block is renewed, that one included: 1 after seeding
  int32_t seeded;
  uint64_t next;           // the place of the next word
  uint64_t words[kWords];  // of 32 bits each
  double unused;
  double normal;  // the second of two, which is kept for the next call
  double unused_too;
  int32_t has_normal;
  uint32_t padding;
  uint64_t unused_at_last;

  // Whether it can be continued: `set_state` of torch also takes states of which one number contradicts another.
  bool is_whole() const {
    if (seeded != 1 || left < 1 || left > kWords) return false;
    return next == static_cast<uint64_t>(kWords + 1 - left) || (left == 1 && next == 0);
  }
};
static_assert(sizeof(GeneratorState) == 5056);

// How torch rounds numbers of a range, as bits.
enum : int64_t {
  kFused = 1,     // a multiply-add once, as where torch was built for processors that have them
  kEndStays = 2,  // what is rounded up to the range's end is that; from torch 2.13 on it is the range's start
};

class Generator {
 public:
  Generator(GeneratorState& state, int64_t rounding)
      : state_(state), fused_((rounding & kFused) != 0), end_stays_((rounding & kEndStays) != 0) {}

  // torch.rand(1), and a double of it.
  float unit() { return static_cast<float>(word() & 0xffffff) * 0x1p-24f; }
  double unit_double() { return static_cast<double>(two_words() & ((uint64_t{1} << 53) - 1)) * 0x1p-53; }

  // torch.empty(1).uniform_(least, most)
  float uniform(float least, float most) {
    const float unit = this->unit(), range = most - least;
    const float value = fused_ ? std::fma(unit, range, least) : unit * range + least;
    return value == most && !end_stays_ ? least : value;
  }

  // torch.randint(0, count, (1,)), of a count up to kMostBelow.
  static constexpr int64_t kMostBelow = (int64_t{1} << 28) - 1;
  int64_t below(int64_t count) { return word() % static_cast<uint32_t>(count); }

  // torch.empty(1).exponential_()
  float exponential() { return static_cast<float>(-std::log1p(-unit_double())); }

  // A number of torch.empty(1).normal_() before it is scaled. Of each pair that is made the second is kept.
  double normal() {
    if (state_.has_normal != 0) {
      const double kept = state_.normal;
      state_.has_normal = 0;
      state_.normal = 0;
      return kept;
    }
    const double turn = 2 * kPi * unit_double();
    const double radius = std::sqrt(-2 * std::log1p(-unit_double()));
    state_.normal = radius * std::sin(turn);
    state_.has_normal = 1;
    return radius * std::cos(turn);
  }
  float normal(double mean, double deviation) {
    const double value = normal();
    return static_cast<float>(fused_ ? std::fma(value, deviation, mean) : value * deviation + mean);
  }

 private:
  static constexpr double kPi = 3.14159265358979323846;

  uint32_t word() {
    if (--state_.left == 0) renew();
    auto y = static_cast<uint32_t>(state_.words[state_.next++]);
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680;
    y ^= (y << 15) & 0xefc60000;
    return y ^ (y >> 18);
  }
  uint64_t two_words() {
    const uint64_t high = word();
    return high << 32 | word();
  }

  void renew() {
    constexpr int kWords = GeneratorState::kWords, kApart = 397;
    uint64_t* const words = state_.words;
    for (int i = 0; i < kWords; ++i) {
      const auto high = static_cast<uint32_t>(words[i]), low = static_cast<uint32_t>(words[i + 1 < kWords ? i + 1 : 0]);
      const uint32_t mixed = (high & 0x80000000) | (low & 0x7fffffff);
      const auto other = static_cast<uint32_t>(words[i + kApart < kWords ? i + kApart : i + kApart - kWords]);
      words[i] = other ^ (mixed >> 1) ^ ((low & 1) != 0 ? 0x9908b0df : 0);
    }
    state_.left = kWords;
    state_.next = 0;
  }

  GeneratorState& state_;
  const bool fused_, end_stays_;
};

}  // namespace polyphase
