// Attention at sampled places: a call as Python packs it, run by torch's threads.
#pragma once

#include <cstring>

#include "polyphase/launch/running.h"
#include "polyphase/warp/attention_call.h"

namespace polyphase {

using RunAttention = void (*)(const AttentionCall& call, int64_t threads, Parallel parallel);

inline void attend(RunAttention run, const uint8_t* data, int64_t size) {
  AttentionCall call;
  if (size != sizeof(call)) throw BadCall{"attention of another size than the launcher's"};
  std::memcpy(&call, data, sizeof(call));
  const int64_t threads = torch_threads();
  without_gil(1, [&] { run(call, threads, Threads::run); });
}

}  // namespace polyphase
