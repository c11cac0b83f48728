#include "polyphase/warp/warp.h"
#include "polyphase/core/convert.h"

namespace polyphase {

struct Store {
  using From = float;
  using To = uint8_t;
  static constexpr bool kIdentity = false;
  static constexpr uint32_t kDivisors = 0;
  static void row(const From* in, To* out, int64_t n, const RowOperands&) { convert(in, out, n); }
};

using Run = Warp<Widened<uint8_t, float>, Linear, float, float, 2, Store>;

}  // namespace polyphase

extern "C" __attribute__((visibility("default"))) const auto polyphase_kernel = polyphase::Run::kernel();
