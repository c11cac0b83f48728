#include "polyphase/resample/resample.h"
#include "polyphase/core/convert.h"

namespace polyphase {

struct Load {
  using From = bfloat16;
  using To = float;
  static constexpr bool kIdentity = false;
  static constexpr uint32_t kDivisors = 0;
  static void row(const From* in, To* out, int64_t n, const RowOperands&) { convert(in, out, n); }
};

struct Store {
  using From = float;
  using To = bfloat16;
  static constexpr bool kIdentity = false;
  static constexpr uint32_t kDivisors = 0;
  static void row(const From* in, To* out, int64_t n, const RowOperands&) { convert(in, out, n); }
};

using Run = Resample<Load, Store>;

}  // namespace polyphase

extern "C" __attribute__((visibility("default"))) const auto polyphase_kernel = polyphase::Run::kernel();
