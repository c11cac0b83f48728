#include "polyphase/resample/resample.h"

namespace polyphase {

struct Load {
  using From = float;
  using To = float;
  static constexpr bool kIdentity = false;
  static constexpr uint32_t kDivisors = 0;
  static constexpr bool kDividesFast = false;
  template <bool kPlanar, bool kFast>
  static bool loop(const From* in, To* out, int64_t n, const RowOperands& operands) {
    static_cast<void>(operands);
    int32_t unsafe = 0;
    for (int64_t i = 0; i < n; ++i) {
      const auto value = in[i];
      out[i] = To((value * 2.0f));
    }
    return unsafe != 0;
  }
  static void row(const From* in, To* out, int64_t n, const RowOperands& operands) {
    row_by_loops<Load>(in, out, n, operands);
  }
};

struct Store {
  using From = float;
  using To = float;
  static constexpr bool kIdentity = false;
  static constexpr uint32_t kDivisors = 0;
  static constexpr bool kDividesFast = false;
  template <bool kPlanar, bool kFast>
  static bool loop(const From* in, To* out, int64_t n, const RowOperands& operands) {
    static_cast<void>(operands);
    int32_t unsafe = 0;
    const auto* operands0 = static_cast<const float*>(operands.tensors[0]);
    for (int64_t i = 0; i < n; ++i) {
      const auto operand0 = operands0[i];
      const auto value = in[i];
      out[i] = To((value + operand0));
    }
    return unsafe != 0;
  }
  static void row(const From* in, To* out, int64_t n, const RowOperands& operands) {
    row_by_loops<Store>(in, out, n, operands);
  }
};

using Run = Resample<Load, Store>;

}  // namespace polyphase

extern "C" __attribute__((visibility("default"))) const auto polyphase_kernel = polyphase::Run::kernel();
