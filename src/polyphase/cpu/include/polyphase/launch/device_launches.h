// Launches of CUDA kernels by the driver's functions.
#pragma once

#include <cstdint>
#include <cstring>

#include "polyphase/launch/device_memory.h"
#include "polyphase/launch/python_objects.h"

namespace polyphase {

inline int64_t launched = 0, makers_launched = 0;  // atomic

constexpr int kMostBytes = 4096;  // of parameters, which is what every GPU takes

// As `cuda/launcher.py` packs it.
struct Plan {
  int64_t function, context;
  int64_t blocks[3];
  int64_t threads, shared_bytes;
  int64_t waits;                   // whether the kernel itself waits for those before it, so that it may be begun meanwhile
  int64_t vectors, tensors;        // how many
  int64_t vectors_at, tensors_at;  // where a call has their addresses, in bytes
  int64_t makes_tables;            // for other kernels: such launches are counted apart
};

// A kernel and what it is given. tables: null, or what has those that it reads, which it owns.
struct Launch {
  Plan plan;
  ptrdiff_t size;
  uint8_t call[kMostBytes];
  Chunk* tables = nullptr;

  Launch() = default;
  Launch(const Launch&) = delete;
  ~Launch() {
    if (tables != nullptr) TableMemory::let_go(tables);
  }
};

// From a plan and a call as bytes; false with an error set.
inline bool read_launch(PyObject* of_plan, PyObject* of_call, Launch& launch) {
  char *plan, *call;
  ptrdiff_t plan_size, call_size;
  if (PyBytes_AsStringAndSize(of_plan, &plan, &plan_size) < 0 || PyBytes_AsStringAndSize(of_call, &call, &call_size) < 0) {
    return false;
  }
  if (plan_size != sizeof(Plan) || call_size > kMostBytes) {
    PyErr_SetString(PyExc_ValueError, "a plan or a call of another size than the launcher's");
    return false;
  }
  std::memcpy(&launch.plan, plan, sizeof(Plan));
  std::memcpy(launch.call, call, call_size);
  launch.size = call_size;
  return true;
}

inline Status launch_on(void* stream, const Plan& plan, void** extra) {
  void* const function = reinterpret_cast<void*>(plan.function);
  const auto blocks_x = static_cast<unsigned>(plan.blocks[0]), blocks_y = static_cast<unsigned>(plan.blocks[1]),
             blocks_z = static_cast<unsigned>(plan.blocks[2]), threads = static_cast<unsigned>(plan.threads),
             shared = static_cast<unsigned>(plan.shared_bytes);
  if (!plan.waits) return launch_kernel(function, blocks_x, blocks_y, blocks_z, threads, 1, 1, shared, stream, nullptr, extra);
  constexpr int kMayBeginEarly = 6;  // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
  static constexpr Attribute attribute = {kMayBeginEarly, 0, {1}};
  const LaunchConfig config = {{blocks_x, blocks_y, blocks_z}, {threads, 1, 1}, shared, stream, &attribute, 1};
  return launch_kernel_early(&config, function, nullptr, extra);
}

// Whether the stream is being captured, which is 1 or 0, or -1 where the driver refuses. call: of so many bytes.
inline int launch(const Plan& plan, void* call, size_t size, void* stream, Chunk* tables = nullptr) {
  enum { kEnd, kParameters, kSize };  // of `extra`
  void* extra[] = {reinterpret_cast<void*>(kParameters), call, reinterpret_cast<void*>(kSize), &size,
                   reinterpret_cast<void*>(kEnd)};
  void* context = nullptr;
  void* const wanted = reinterpret_cast<void*>(plan.context);
  Status status = current_context(&context);
  const bool elsewhere = status == 0 && context != wanted;
  if (elsewhere) status = push_context(wanted);
  int capturing = 0;
  if (status == 0 && stream != nullptr) status = is_capturing(stream, &capturing);  // the default stream never is
  if (status == 0 && tables != nullptr) status = let_read(*tables, stream, capturing != 0);
  if (status == 0) status = launch_on(stream, plan, extra);
  if (elsewhere) pop_context(&context);
  if (status != 0) return -1;
  __atomic_add_fetch(plan.makes_tables != 0 ? &makers_launched : &launched, 1, __ATOMIC_RELAXED);
  return capturing != 0;
}

// Likewise, with an error set.
inline int run(const Plan& plan, void* call, size_t size, void* stream, Chunk* tables = nullptr) {
  const int captured = launch(plan, call, size, stream, tables);
  if (captured < 0) PyErr_SetString(PyExc_ValueError, "the CUDA driver refused to launch a kernel");
  return captured;
}

// Whether it is.
inline bool is_captured(int64_t stream) {
  int capturing = 0;
  return stream != 0 && (is_capturing(reinterpret_cast<void*>(stream), &capturing) != 0 || capturing != 0);
}

}  // namespace polyphase
