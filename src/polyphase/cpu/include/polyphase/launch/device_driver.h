// Functions of the CUDA driver, which Python finds: there is no library of it at link time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace polyphase {

using Status = int;
using LaunchKernel = Status (*)(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned shared,
                                void* stream, void** parameters, void** extra);
// CUlaunchAttribute and CUlaunchConfig of the driver.
struct alignas(8) Attribute {
  int id, unused;
  int value[16];
};
struct LaunchConfig {
  unsigned blocks[3], threads[3], shared_bytes;
  void* stream;
  const Attribute* attributes;
  unsigned attribute_count;
};
using LaunchKernelEx = Status (*)(const LaunchConfig* config, void* function, void** parameters, void** extra);
using GetContext = Status (*)(void** context);
using PushContext = Status (*)(void* context);
using IsCapturing = Status (*)(void* stream, int* status);

// launch_kernel_early: none of an old driver's.
inline LaunchKernel launch_kernel;
inline LaunchKernelEx launch_kernel_early;
inline GetContext current_context, pop_context;
inline PushContext push_context;
inline IsCapturing is_capturing;
// And those for memory, as `driver.py` lists them.
struct MemoryFunctions {
  Status (*allocate)(int64_t* address, size_t bytes);
  Status (*free)(int64_t address);
  Status (*copy)(int64_t to, const void* from, size_t bytes, void* stream);
  Status (*new_event)(void** event, unsigned flags);
  Status (*delete_event)(void* event);
  Status (*record)(void* event, void* stream);
  Status (*wait)(void* stream, void* event, unsigned flags);
  Status (*synchronize)(void* event);
  Status (*new_stream)(void** stream, unsigned flags);
  Status (*exchange_capture_mode)(int* mode);
};
inline MemoryFunctions memory_functions;

}  // namespace polyphase
