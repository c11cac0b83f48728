#include "polyphase/resample/resample.h"

namespace polyphase {

using Run = Resample<Unchanged<uint8_t>, Unchanged<uint8_t>>;

}  // namespace polyphase

extern "C" __attribute__((visibility("default"))) const auto polyphase_kernel = polyphase::Run::kernel();
