// From Python to a CUDA kernel: `bind` takes how a call is launched and its parameters, `launch` the addresses of tensors.
#include <cstring>
#include <new>

#include "polyphase/core/abi.h"
#include "polyphase/launch/again.h"

namespace polyphase {
namespace {

using Status = int;
using LaunchKernel = Status (*)(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned shared,
                                void* stream, void** parameters, void** extra);
using GetContext = Status (*)(void** context);
using PushContext = Status (*)(void* context);
using IsCapturing = Status (*)(void* stream, int* status);

// Functions of the driver, and how many launches there were.
LaunchKernel launch_kernel;
GetContext current_context, pop_context;
PushContext push_context;
IsCapturing is_capturing;
int64_t launched = 0;  // atomic

constexpr int kMostBytes = 4096;  // of parameters, which is what every GPU takes

// As `cuda/launcher.py` packs it.
struct Plan {
  int64_t function, context;
  int64_t blocks[3];
  int64_t threads, shared_bytes;
  int64_t vectors, tensors;        // how many
  int64_t vectors_at, tensors_at;  // where a call has their addresses, in bytes
};

struct Bound {
  Plan plan;
  ptrdiff_t size;
  uint8_t call[kMostBytes];
};

void release(PyObject* capsule) { delete static_cast<Bound*>(PyCapsule_GetPointer(capsule, nullptr)); }

PyObject* python_bind(PyObject*, PyObject* const* args, ptrdiff_t count) {
  char *plan, *call;
  ptrdiff_t plan_size, call_size;
  if (count != 2 || PyBytes_AsStringAndSize(args[0], &plan, &plan_size) < 0 ||
      PyBytes_AsStringAndSize(args[1], &call, &call_size) < 0) {
    return nullptr;
  }
  if (plan_size != sizeof(Plan) || call_size > kMostBytes) {
    PyErr_SetString(PyExc_ValueError, "a plan or a call of another size than the launcher's");
    return nullptr;
  }
  auto* bound = new (std::nothrow) Bound;
  if (bound == nullptr) {
    PyErr_SetString(PyExc_MemoryError, "not enough memory for a call");
    return nullptr;
  }
  std::memcpy(&bound->plan, plan, sizeof(Plan));
  std::memcpy(bound->call, call, call_size);
  bound->size = call_size;
  return PyCapsule_New(bound, nullptr, release);
}

// Whether the stream is being captured, which is 1 or 0, or -1 with an error set.
int run(const Bound& bound, uint8_t* call, void* stream) {
  const Plan& plan = bound.plan;
  size_t size = bound.size;
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
  if (status == 0) {
    status = launch_kernel(reinterpret_cast<void*>(plan.function), plan.blocks[0], plan.blocks[1], plan.blocks[2],
                           plan.threads, 1, 1, plan.shared_bytes, stream, nullptr, extra);
  }
  if (elsewhere) pop_context(&context);
  if (status != 0) {
    PyErr_SetString(PyExc_ValueError, "the CUDA driver refused to launch a kernel");
    return -1;
  }
  __atomic_add_fetch(&launched, 1, __ATOMIC_RELAXED);
  return capturing != 0;
}

// bound, stream, target, source, vectors, tensors
PyObject* python_launch(PyObject*, PyObject* const* args, ptrdiff_t count) {
  const auto* bound = count < 4 ? nullptr : static_cast<const Bound*>(PyCapsule_GetPointer(args[0], nullptr));
  if (bound == nullptr || count != 4 + bound->plan.vectors + bound->plan.tensors) {
    if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_ValueError, "as many tensors as a call was bound to");
    return nullptr;
  }
  const Plan& plan = bound->plan;
  alignas(16) uint8_t call[kMostBytes];
  std::memcpy(call, bound->call, bound->size);
  auto* addresses = reinterpret_cast<int64_t*>(call);
  for (ptrdiff_t i = 2; i < count; ++i) {
    const ptrdiff_t operand = i - 4, tensor = operand - plan.vectors;
    int64_t* to = addresses + (i - 2);
    if (operand >= 0) to = addresses + plan.vectors_at / 8 + operand;
    if (operand >= plan.vectors) to = addresses + plan.tensors_at / 8 + tensor;
    *to = PyLong_AsLongLong(args[i]);
  }
  const int64_t stream = PyLong_AsLongLong(args[1]);
  if (PyErr_Occurred() != nullptr) return nullptr;
  const int captured = run(*bound, call, reinterpret_cast<void*>(stream));
  return captured < 0 ? nullptr : PyLong_FromLongLong(captured);
}

// What `fresh` takes.
enum { kBound, kEmpty, kShape, kStreamOf, kDevice, kKeep, kOtherwise, kParts };

// Launches into a new tensor; true, or false with an error set.
bool launch_into(PyObject* parts, const Bound& bound, PyObject* out, int64_t source) {
  PyObject* const device = PyTuple_GetItem(parts, kDevice);
  PyObject* const number = PyObject_Vectorcall(PyTuple_GetItem(parts, kStreamOf), &device, 1, nullptr);
  if (number == nullptr) return false;
  const int64_t stream = PyLong_AsLongLong(number);
  Py_DecRef(number);
  alignas(16) uint8_t call[kMostBytes];
  std::memcpy(call, bound.call, bound.size);
  const int64_t addresses[] = {address_of(out), source};
  std::memcpy(call, addresses, sizeof(addresses));
  if (PyErr_Occurred() != nullptr) return false;
  const int captured = run(bound, call, reinterpret_cast<void*>(stream));
  if (captured <= 0) return captured == 0;
  PyObject* const kept = PyObject_CallNoArgs(PyTuple_GetItem(parts, kKeep));
  if (kept != nullptr) Py_DecRef(kept);
  return kept != nullptr;
}

// A whole call: image -> a new tensor. Without operands; an image that begins anywhere goes otherwise.
PyObject* python_call(PyObject* parts, PyObject* const* args, ptrdiff_t count) {
  if (count != 1) {
    PyErr_SetString(PyExc_ValueError, "an image, and nothing else");
    return nullptr;
  }
  const auto* bound = static_cast<const Bound*>(PyCapsule_GetPointer(PyTuple_GetItem(parts, kBound), nullptr));
  const int64_t source = bound == nullptr ? -1 : address_of(args[0]);
  if (source == -1) return nullptr;
  if (source % 16 != 0) return PyObject_Vectorcall(PyTuple_GetItem(parts, kOtherwise), args, 1, nullptr);
  PyObject* const out = PyObject_CallObject(PyTuple_GetItem(parts, kEmpty), PyTuple_GetItem(parts, kShape));
  if (out == nullptr || launch_into(parts, *bound, out, source)) return out;
  Py_DecRef(out);
  return nullptr;
}

PyMethodDef whole_call = {"call", python_call, METH_FASTCALL, "Of an image: a new tensor."};

PyObject* python_fresh(PyObject*, PyObject* const* args, ptrdiff_t count) {
  if (count != 1 || PyTuple_Size(args[0]) != kParts) {
    if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_ValueError, "the parts of a call, as a tuple");
    return nullptr;
  }
  return PyCFunction_NewEx(&whole_call, args[0], nullptr);
}

PyObject* python_count(PyObject*, PyObject* const*, ptrdiff_t) {
  return PyLong_FromLongLong(__atomic_load_n(&launched, __ATOMIC_RELAXED));
}

PyMethodDef functions[] = {
    {"bind", python_bind, METH_FASTCALL, "A call with all it needs but addresses."},
    {"launch", python_launch, METH_FASTCALL, "Launches what was bound; whether a graph is being captured."},
    {"fresh", python_fresh, METH_FASTCALL, "What was bound, as a function of an image."},
    {"count", python_count, METH_FASTCALL, "How many launches there were."},
    {"again", python_again, METH_FASTCALL, "A call, to be made once more where it is the one before."},
    {"read_by_handles", python_read_by_handles, METH_FASTCALL, "How tensors are asked from now on."},
};

}  // namespace
}  // namespace polyphase

// The addresses of cuLaunchKernel, cuCtxGetCurrent, cuCtxPushCurrent, cuCtxPopCurrent and cuStreamIsCapturing.
extern "C" __attribute__((visibility("default"))) PyObject* polyphase_functions(
    const int64_t* addresses) {
  using namespace polyphase;
  launch_kernel = reinterpret_cast<LaunchKernel>(addresses[0]);
  current_context = reinterpret_cast<GetContext>(addresses[1]);
  push_context = reinterpret_cast<PushContext>(addresses[2]);
  pop_context = reinterpret_cast<GetContext>(addresses[3]);
  is_capturing = reinterpret_cast<IsCapturing>(addresses[4]);
  constexpr int kCount = sizeof(functions) / sizeof(functions[0]);
  PyObject* tuple = PyTuple_New(kCount);
  for (int i = 0; i < kCount; ++i) PyTuple_SetItem(tuple, i, PyCFunction_NewEx(&functions[i], nullptr, nullptr));
  return tuple;
}
