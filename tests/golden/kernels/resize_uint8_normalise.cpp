#include "polyphase/resample/resample.h"

namespace polyphase {

struct Store {
  using From = uint8_t;
  using To = float;
  static constexpr bool kIdentity = false;
  static constexpr uint32_t kDivisors = 2;
  static constexpr bool kDividesFast = kFastDivision;
  template <bool kPlanar, bool kFast>
  static bool loop(const From* in, To* out, int64_t n, const RowOperands& operands) {
    static_cast<void>(operands);
    int32_t unsafe = 0;
    const auto* channels0 = static_cast<const float*>(operands.vectors[0]);
    const auto* channels1 = static_cast<const float*>(operands.vectors[1]);
    const float* reciprocals1 = operands.reciprocals[1];
    const auto channel0_of_row = *channels0;
    const auto channel1_of_row = *channels1;
    const float reciprocal1_of_row = kPlanar ? reciprocal_of(channel1_of_row) : 0;
    for (int64_t i = 0; i < n; ++i) {
      const auto channel0 = kPlanar ? channel0_of_row : channels0[i];
      const auto channel1 = kPlanar ? channel1_of_row : channels1[i];
      const float reciprocal1 = kPlanar || !kFast ? reciprocal1_of_row : reciprocals1[i];
      const auto value = in[i];
      out[i] = To(quotient<kFast>((quotient_of_byte(value, 255.0f, reciprocal_of(255.0f)) - channel0), channel1, reciprocal1, unsafe));
    }
    return unsafe != 0;
  }
  static void row(const From* in, To* out, int64_t n, const RowOperands& operands) {
    row_by_loops<Store>(in, out, n, operands);
  }
};

using Run = Resample<Unchanged<uint8_t>, Store>;

}  // namespace polyphase

extern "C" __attribute__((visibility("default"))) const auto polyphase_kernel = polyphase::Run::kernel();
