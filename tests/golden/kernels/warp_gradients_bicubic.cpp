#include "polyphase/warp/gradients.h"

namespace polyphase {

using Run = WarpGradients<Unchanged<float>, Cubic, float, float, 2>;

}  // namespace polyphase

extern "C" __attribute__((visibility("default"))) const auto polyphase_kernel = polyphase::Run::kernel();
