// From Python to a CUDA kernel: `bind` takes how a call is launched and its parameters, `launch` the addresses of tensors.
#include <cstring>
#include <new>

#include "polyphase/core/abi.h"
#include "polyphase/launch/again.h"
#include "polyphase/launch/device_functions.h"
#include "polyphase/launch/device_launches.h"
#include "polyphase/launch/dispatched.h"
#include "polyphase/launch/python_objects.h"
#include "polyphase/launch/sized_table.h"

namespace polyphase {
namespace {

int64_t made_tables = 0;

void release(PyObject* capsule) { delete static_cast<Bound*>(PyCapsule_GetPointer(capsule, nullptr)); }

// A plan, a call, and where it may become better what makes it so, and the address of what is not 0 as soon as it can.
PyObject* python_bind(PyObject*, PyObject* const* args, ptrdiff_t count) {
  if (count != 2 && count != 4) {
    PyErr_SetString(PyExc_ValueError, "a plan and a call, and what makes it better with where it says that it can");
    return nullptr;
  }
  const int64_t ready = count == 4 ? PyLong_AsLongLong(args[3]) : 0;
  if (PyErr_Occurred() != nullptr) return nullptr;
  auto* bound = new (std::nothrow) Bound;
  if (bound == nullptr) return no_memory();
  if (!read_launch(args[0], args[1], bound->first)) {
    delete bound;
    return nullptr;
  }
  if (count == 4) {
    bound->better = owned(args[2]);
    bound->ready = reinterpret_cast<const int64_t*>(ready);
  }
  return PyCapsule_New(bound, nullptr, release);
}

// Where the addresses of target, source, vectors and tensors are to be, in their order.
int64_t* place_of(const Plan& plan, uint8_t* call, ptrdiff_t number) {
  auto* const addresses = reinterpret_cast<int64_t*>(call);
  const ptrdiff_t operand = number - 2, tensor = operand - plan.vectors;
  if (operand < 0) return addresses + number;
  return tensor < 0 ? addresses + plan.vectors_at / 8 + operand : addresses + plan.tensors_at / 8 + tensor;
}

// Python does what keeps tables for a graph that is captured, and an image that begins anywhere.
bool run_directly(const void* what, int32_t device, void* const* addresses, int64_t count) {
  const auto& bound = *static_cast<const Bound*>(what);
  const Launch& known = bound.launch();
  const Plan& plan = known.plan;
  void* stream = nullptr;
  if (bound.may_become_better()) return false;  // which Python sees to
  if (count != 2 + plan.vectors + plan.tensors || reinterpret_cast<uintptr_t>(addresses[1]) % 16 != 0) return false;
  if (torch_functions().stream == nullptr || torch_functions().stream(device, &stream) != 0) return false;
  int capturing = 0;
  if (stream != nullptr && (is_capturing(stream, &capturing) != 0 || capturing != 0)) return false;
  alignas(16) uint8_t call[kMostBytes];
  std::memcpy(call, known.call, known.size);
  for (int64_t i = 0; i < count; ++i) *place_of(plan, call, i) = reinterpret_cast<int64_t>(addresses[i]);
  return launch(plan, call, known.size, stream) >= 0;
}

// bound, stream, target, source, vectors, tensors
PyObject* python_launch(PyObject*, PyObject* const* args, ptrdiff_t count) {
  auto* bound = count < 4 ? nullptr : static_cast<Bound*>(PyCapsule_GetPointer(args[0], nullptr));
  if (bound == nullptr || count != 4 + bound->first.plan.vectors + bound->first.plan.tensors) {
    if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_ValueError, "as many tensors as a call was bound to");
    return nullptr;
  }
  const int64_t stream = PyLong_AsLongLong(args[1]);
  if (PyErr_Occurred() != nullptr || !become_better(*bound, stream)) return nullptr;
  const Launch& known = bound->launch();
  const Plan& plan = known.plan;
  alignas(16) uint8_t call[kMostBytes];
  std::memcpy(call, known.call, known.size);
  for (ptrdiff_t i = 2; i < count; ++i) *place_of(plan, call, i - 2) = PyLong_AsLongLong(args[i]);
  if (PyErr_Occurred() != nullptr) return nullptr;
  const int captured = run(plan, call, known.size, reinterpret_cast<void*>(stream));
  return captured < 0 ? nullptr : PyLong_FromLongLong(captured);
}

// What `fresh` takes.
enum { kBound, kEmpty, kShape, kStreamOf, kDevice, kKeep, kOtherwise, kParts };

// Launches into a new tensor; true, or false with an error set.
bool launch_into(PyObject* parts, Bound& bound, PyObject* out, int64_t source) {
  PyObject* const device = PyTuple_GetItem(parts, kDevice);
  PyObject* const number = PyObject_VectorcallDict(PyTuple_GetItem(parts, kStreamOf), &device, 1, nullptr);
  if (number == nullptr) return false;
  const int64_t stream = PyLong_AsLongLong(number);
  Py_DecRef(number);
  if (PyErr_Occurred() != nullptr || !become_better(bound, stream)) return false;
  const Launch& known = bound.launch();
  alignas(16) uint8_t call[kMostBytes];
  std::memcpy(call, known.call, known.size);
  const int64_t addresses[] = {address_of(out), source};
  std::memcpy(call, addresses, sizeof(addresses));
  if (PyErr_Occurred() != nullptr) return false;
  const int captured = run(known.plan, call, known.size, reinterpret_cast<void*>(stream));
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
  auto* bound = static_cast<Bound*>(PyCapsule_GetPointer(PyTuple_GetItem(parts, kBound), nullptr));
  const int64_t source = bound == nullptr ? -1 : address_of(args[0]);
  if (source == -1) return nullptr;
  if (source % 16 != 0) return PyObject_VectorcallDict(PyTuple_GetItem(parts, kOtherwise), args, 1, nullptr);
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

// ---- batches of images of any size, by one launch

// What `sized` takes: capsules of SizedBatch and of the launches of the kernel and of what makes tables, and functions.
enum { kBatch, kKernel, kTapMaker, kStream, kOnDevice, kNew, kStaged, kThere, kRead, kSizedParts };

constexpr int64_t kMostBlocks = 65535;  // from plane to plane

void release_batch(PyObject* capsule) { delete static_cast<SizedBatch*>(PyCapsule_GetPointer(capsule, nullptr)); }

template <class T>
T& in_capsule(PyObject* parts, int place) {
  auto* const found = static_cast<T*>(PyCapsule_GetPointer(PyTuple_GetItem(parts, place), nullptr));
  if (found == nullptr) throw PythonError();
  return *found;
}

PyObject* called(PyObject* function, PyObject* argument) {
  PyObject* const made = PyObject_VectorcallDict(function, &argument, 1, nullptr);
  if (made == nullptr) throw PythonError();
  return made;
}

PyObject* tensor_of(PyObject* parts, int make, int64_t bytes) {
  const Reference size(PyLong_FromLongLong(bytes));
  return called(PyTuple_GetItem(parts, make), size.get());
}

int64_t address_in(const Reference& tensor) {
  const int64_t address = address_of(tensor.get());
  if (PyErr_Occurred() != nullptr) throw PythonError();
  return address;
}

void run_or_throw(const Plan& plan, int64_t first, int64_t second, int64_t stream) {
  int64_t call[] = {first, second};
  if (run(plan, call, sizeof(call), reinterpret_cast<void*>(stream)) < 0) throw PythonError();
}

void launch_sized(PyObject* parts, SizedBatch& batch, SizedTable& table, int64_t stream) {
  const RowPattern& pattern = batch.rows.pattern();
  const int64_t count = table.images.size(), tables = 2 * table.fresh.size();
  const Reference memory(tables == 0 ? nullptr : tensor_of(parts, kNew, table.table_bytes));
  table.fill(batch.rows, tables == 0 ? 0 : address_in(memory));
  const int64_t of_recipes = tables * static_cast<int64_t>(sizeof(TapRecipe));
  const int64_t of_tiles = table.tiles.size() * static_cast<int64_t>(sizeof(TileOfCall)), before = of_recipes + of_tiles;
  const Reference staged(tensor_of(parts, kStaged, before + table.rows.size()));
  auto* const bytes = reinterpret_cast<uint8_t*>(address_in(staged));
  if (tables != 0) std::memcpy(bytes, table.recipes.data(), of_recipes);
  if (of_tiles != 0) std::memcpy(bytes + of_recipes, table.tiles.data(), of_tiles);
  std::memcpy(bytes + before, table.rows.data(), table.rows.size());
  const Reference there(called(PyTuple_GetItem(parts, kThere), staged.get()));
  const int64_t address = address_in(there);
  if (tables != 0) {
    Plan plan = in_capsule<Bound>(parts, kTapMaker).first.plan;
    plan.blocks[0] = tables;
    run_or_throw(plan, address, tables, stream);
  }
  Plan plan = in_capsule<Bound>(parts, kKernel).first.plan;
  int64_t number = min(pattern.planes, kMostBlocks / count), blocks[] = {pattern.along, pattern.down, number * count};
  if (of_tiles != 0) {  // which blocks take one after another
    number = table.tiles.size();
    blocks[0] = min(number, pattern.along);
    blocks[2] = 1;
  }
  std::memcpy(plan.blocks, blocks, sizeof(blocks));
  plan.shared_bytes = table.shared_bytes;
  run_or_throw(plan, address + before, number, stream);
  made_tables += tables;
  if (tables == 0 || table.fresh.size() > SeenRows::kMost) return;
  if (batch.seen.size() + table.fresh.size() > SeenRows::kMost) batch.forget();
  batch.kept.push_back(owned(memory.get()));
  for (const int64_t number : table.fresh) {
    const SizedImage& image = table.images[number];
    batch.seen.insert({stream, image}, table.rows.data() + number * batch.rows.row_bytes(), image);
  }
}

// out, images and the places of those that are wanted, or None for all -> places that are left: those of other patterns.
PyObject* python_launch_sized(PyObject* parts, PyObject* const* args, ptrdiff_t count) {
  return guarded([&]() -> PyObject* {
    if (count != 3) throw BadCall{"an output, a tuple of images, and places"};
    auto& batch = in_capsule<SizedBatch>(parts, kBatch);
    const bool all = args[2] == &_Py_NoneStruct;
    const int64_t wanted = PyTuple_Size(all ? args[1] : args[2]);
    if (wanted < 0) throw PythonError();
    const int64_t out = address_of(args[0]);
    if (PyErr_Occurred() != nullptr) throw PythonError();
    const Reference number(called(PyTuple_GetItem(parts, kStream), PyTuple_GetItem(parts, kOnDevice)));
    const int64_t stream = integer(number.get());
    const RowPattern& pattern = batch.rows.pattern();
    if (out % pattern.alignment != 0 || wanted > kMostBlocks || is_captured(stream)) return owned(args[2]);
    SizedTable table;
    table.images.reserve(wanted);
    table.rows.reserve(wanted * batch.rows.row_bytes());
    for (int64_t i = 0; i < wanted; ++i) {
      const int64_t place = all ? i : integer(PyTuple_GetItem(args[2], i));
      PyObject* const image = PyTuple_GetItem(args[1], place);
      if (image == nullptr) throw PythonError();
      table.add(batch, image, place, out + place * pattern.out_step, stream);
    }
    if (table.images.size() > 0) launch_sized(parts, batch, table, stream);
    return numbers(table.left.data(), table.left.size());
  });
}

// The parts, the first of them a pattern, its row, and steps by size as bytes; None where it is not of those.
PyObject* python_sized(PyObject*, PyObject* const* args, ptrdiff_t count) {
  static PyMethodDef launch = {"launch", python_launch_sized, METH_FASTCALL, "Images of any size; the places left."};
  return guarded([&]() -> PyObject* {
    if (count != 4 || PyTuple_Size(args[3]) != kSizedParts - 1) throw BadCall{"a pattern, a row, steps and parts"};
    const Data pattern = bytes(args[0]), row = bytes(args[1]), steps = bytes(args[2]);
    if (pattern.size != sizeof(RowPattern) || steps.size % sizeof(SizeStep) != 0) {
      throw BadCall{"a pattern or steps of another size than the launcher's"};
    }
    RowPattern copy;
    std::memcpy(&copy, pattern.data, sizeof(copy));
    Buffer<SizeStep> of_size(steps.size / sizeof(SizeStep));
    std::memcpy(of_size.data(), steps.data, steps.size);
    auto* const batch =
        new SizedBatch{{copy, row.data, row.size, of_size.data(), of_size.size()}, SeenRows(row.size), {}};
    const Reference capsule(PyCapsule_New(batch, nullptr, release_batch));
    if (!batch->rows.holds()) return none();
    const Reference parts(PyTuple_New(kSizedParts));
    PyTuple_SetItem(parts.get(), kBatch, owned(capsule.get()));
    for (int i = 1; i < kSizedParts; ++i) PyTuple_SetItem(parts.get(), i, owned(PyTuple_GetItem(args[3], i - 1)));
    return PyCFunction_NewEx(&launch, parts.get(), nullptr);
  });
}

PyObject* python_counts(PyObject*, PyObject* const*, ptrdiff_t) {
  const int64_t counts[] = {__atomic_load_n(&launched, __ATOMIC_RELAXED), __atomic_load_n(&makers_launched, __ATOMIC_RELAXED),
                            made_tables};
  return guarded([&] { return numbers(counts, 3); });
}

PyMethodDef functions[] = {
    {"bind", python_bind, METH_FASTCALL, "A call with all it needs but addresses."},
    {"launch", python_launch, METH_FASTCALL, "Launches what was bound; whether a graph is being captured."},
    {"fresh", python_fresh, METH_FASTCALL, "What was bound, as a function of an image."},
    {"sized", python_sized, METH_FASTCALL, "What launches images of any size, whose steps follow from it; or None."},
    {"counts", python_counts, METH_FASTCALL, "Launches, those of what makes tables, and tables made for images of any size."},
    {"again", python_again, METH_FASTCALL, "A call, to be made once more where it is the one before."},
    {"read_by_handles", python_read_by_handles, METH_FASTCALL, "How tensors are asked from now on."},
    {"dispatch_by", python_dispatch_by, METH_FASTCALL, "How kernels in the dispatcher know torch."},
    {"operator", python_operator, METH_FASTCALL, "A kernel for the dispatcher, as a number."},
    {"put", python_put, METH_FASTCALL, "Puts it into the dispatcher."},
    {"take_away", python_take_away, METH_FASTCALL, "Takes it away."},
    {"direct", python_direct, METH_FASTCALL, "Whether such kernels make calls without Python."},
};

}  // namespace
}  // namespace polyphase

// Those that need no driver.
extern "C" __attribute__((visibility("default"))) PyObject* polyphase_device_functions() {
  return polyphase::as_tuple(polyphase::device_functions);
}

// The addresses of cuLaunchKernel, cuCtxGetCurrent, cuCtxPushCurrent, cuCtxPopCurrent, cuStreamIsCapturing and cuLaunchKernelEx.
extern "C" __attribute__((visibility("default"))) PyObject* polyphase_functions(
    const int64_t* addresses) {
  using namespace polyphase;
  launch_kernel = reinterpret_cast<LaunchKernel>(addresses[0]);
  current_context = reinterpret_cast<GetContext>(addresses[1]);
  push_context = reinterpret_cast<PushContext>(addresses[2]);
  pop_context = reinterpret_cast<GetContext>(addresses[3]);
  is_capturing = reinterpret_cast<IsCapturing>(addresses[4]);
  launch_kernel_early = reinterpret_cast<LaunchKernelEx>(addresses[5]);
  dispatched().run = run_directly;
  return as_tuple(functions);
}
