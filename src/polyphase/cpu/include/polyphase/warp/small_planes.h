// 2 x 2 taps in planes of so few floats that a few registers of AVX-512 hold them: taps are picked by permutations, where
// gathers read memory for every one.
//
// Sums are those of `windows.h`, bit by bit. They return false where a value came out NaN.
#pragma once

#include "polyphase/core/unroll.h"
#include "polyphase/warp/windows.h"

namespace polyphase {

#if defined(__AVX512F__)

// A plane of up to 16 * kRegisters elements.
template <int kRegisters>
class PlaneInRegisters {
 public:
  using Lanes = Vec<float>;

  POLYPHASE_BLOCK PlaneInRegisters(const float* plane, int elements) {
    repeat<kRegisters>([&](auto r) __attribute__((always_inline)) {
      const int rest = elements - 16 * r;
      const __mmask16 there = static_cast<__mmask16>(rest >= 16 ? 0xffff : (1 << rest) - 1);
      elements_[r] = _mm512_maskz_loadu_ps(there, plane + 16 * r);
    });
  }

  POLYPHASE_BLOCK Lanes pick(Lanes::Index at) const {
    if constexpr (kRegisters == 1) return {_mm512_permutexvar_ps(at, elements_[0])};
    __m512 picked = of_two<0>(at);
    repeat<(kRegisters - 1) / 2>([&](auto p) __attribute__((always_inline)) {
      const __mmask16 beyond = _mm512_cmpge_epi32_mask(at, _mm512_set1_epi32(32 * (p + 1)));
      picked = _mm512_mask_mov_ps(picked, beyond, of_two<2 * (p + 1)>(at));
    });
    return {picked};
  }

 private:
  // The last bits of `at` count in registers r and r + 1, if there is one.
  template <int r>
  POLYPHASE_BLOCK __m512 of_two(Lanes::Index at) const {
    if constexpr (r + 1 < kRegisters) return _mm512_permutex2var_ps(elements_[r], at, elements_[r + 1]);
    return _mm512_permutexvar_ps(at, elements_[r]);
  }

  __m512 elements_[kRegisters];
};

// The planes of images whose rows lie dense.
class SmallPlanes {
 public:
  explicit SmallPlanes(const WarpCall& call)
      : elements_(elements_of(call)), y_stride_(static_cast<int>(call.image_strides.y)), channel_stride_(call.image_strides.channel) {}

  static bool hold(const WarpCall& call) {
    return call.image_strides.x == 1 && call.in_size[1] > 1 && call.in_size[2] > 1 && elements_of(call) <= 16 * kMostRegisters;
  }

  bool sum(const SquareTaps& taps, const float* image, int64_t channels, float* out, int64_t stride) const {
    bool numbers = false;
    with_constant<1, kMostRegisters>(static_cast<int>((elements_ + 15) / 16), [&](auto registers) {
      if constexpr (registers > 0) numbers = sum_of<registers>(taps, image, channels, out, stride);
    });
    return numbers;
  }

 private:
  using Lanes = Vec<float>;
  static constexpr int kMostRegisters = 8;

  // From a plane's first to its last.
  static int64_t elements_of(const WarpCall& call) { return (call.in_size[1] - 1) * call.image_strides.y + call.in_size[2]; }

  template <int kRegisters>
  POLYPHASE_ROW_LOOP bool sum_of(const SquareTaps& taps, const float* image, int64_t channels, float* out, int64_t stride) const {
    Lanes total = Lanes::zero();
    for (int64_t c = 0; c < channels; ++c, image += channel_stride_, out += stride) {
      const PlaneInRegisters<kRegisters> plane(image, static_cast<int>(elements_));
      for (int i = 0; i < taps.count; i += Lanes::kLanes) {
        const SixteenWeights weights(taps, i);
        const Lanes::Index first = Lanes::load_index(taps.first + i), below = Lanes::advance(first, y_stride_);
        const Lanes sum = weights.sum(plane.pick(first), plane.pick(Lanes::advance(first, 1)), plane.pick(below),
                                      plane.pick(Lanes::advance(below, 1)));
        total = total.plus(sum);
        sum.store(out + i);
      }
    }
    return !total.has_nan();
  }

  const int64_t elements_;
  const int y_stride_;
  const int64_t channel_stride_;
};

#else

struct SmallPlanes {
  explicit SmallPlanes(const WarpCall&) {}
  static bool hold(const WarpCall&) { return false; }
  bool sum(const SquareTaps&, const float*, int64_t, float*, int64_t) const { return false; }
};

#endif

}  // namespace polyphase
