// From Python to a CUDA kernel: `bind` takes how a call is launched and its parameters, `launch` the addresses of tensors.
#include <cstring>
#include <new>

#include "polyphase/core/abi.h"
#include "polyphase/launch/again.h"
#include "polyphase/launch/any_sizes.h"
#include "polyphase/launch/device_calls.h"
#include "polyphase/launch/device_functions.h"
#include "polyphase/launch/dispatched.h"
#include "polyphase/launch/python_objects.h"
#include "polyphase/launch/sized_table.h"

namespace polyphase {
namespace {

int64_t made_tables = 0;

// A plan, a call, and a tuple of what it reads.
PyObject* python_bind(PyObject*, PyObject* const* args, ptrdiff_t count) {
  if (count != 3) throw BadCall{"a plan, a call and what it reads"};
  auto* const bound = new Bound;
  Reference capsule(capsule_of(bound));
  if (!read_launch(args[0], args[1], bound->first)) throw PythonError();
  for (int64_t i = 0; i < PyTuple_Size(args[2]); ++i) bound->kept.push_back(owned(PyTuple_GetItem(args[2], i)));
  return capsule.release();
}

// ---- calls of axis maps

// `device::Program`, a context, a device, and what is asked for kernels.
PyObject* python_program(PyObject*, PyObject* const* args, ptrdiff_t count) {
  if (count != 3 + DeviceCalls::kFunctions) throw BadCall{"a program, a context, a device, and five functions"};
  const auto program = read_as<device::Program>(args[0], "a program of another size than the launcher's");
  return capsule_of(new DeviceCalls(program, integer(args[1]), integer(args[2]), args + 3));
}

// A program, a request, and whether source and target are aligned.
PyObject* python_bind_request(PyObject*, PyObject* const* args, ptrdiff_t count) {
  if (count != 3) throw BadCall{"a program, a request, and whether it is aligned"};
  const Data request = bytes(args[1]);
  return new_bound(args[0], request.data, request.size, integer(args[2]) != 0);
}

PyObject* tables_of(const Bound& bound) {
  PyObject* const tuple = PyTuple_New(bound.kept.size());
  for (int64_t i = 0; i < bound.kept.size(); ++i) PyTuple_SetItem(tuple, i, owned(bound.kept[i]));
  return tuple;
}

Bound& bound_in(PyObject* capsule) { return in_capsule<Bound>(capsule); }

// What a bound call reads.
PyObject* python_tables(PyObject*, PyObject* const* args, ptrdiff_t count) {
  if (count != 1) throw BadCall{"what is bound"};
  return tables_of(bound_in(args[0]));
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
  if (bound.may_become_better()) return false;  // which takes Python
  if (count != 2 + plan.vectors + plan.tensors || reinterpret_cast<uintptr_t>(addresses[1]) % 16 != 0) return false;
  if (torch_functions().stream == nullptr || torch_functions().stream(device, &stream) != 0) return false;
  int capturing = 0;
  if (stream != nullptr && (is_capturing(stream, &capturing) != 0 || capturing != 0)) return false;
  alignas(16) uint8_t call[kMostBytes];
  std::memcpy(call, known.call, known.size);
  for (int64_t i = 0; i < count; ++i) *place_of(plan, call, i) = reinterpret_cast<int64_t>(addresses[i]);
  return launch(plan, call, known.size, stream, known.tables) >= 0;
}

// bound, stream, target, source, vectors, tensors
PyObject* python_launch(PyObject*, PyObject* const* args, ptrdiff_t count) {
  Bound* const bound = count < 4 ? nullptr : &bound_in(args[0]);
  if (bound == nullptr || count != 4 + bound->first.plan.vectors + bound->first.plan.tensors) {
    throw BadCall{"as many tensors as a call was bound to"};
  }
  const int64_t stream = integer(args[1]);
  become_better(*bound, stream);
  const Launch& known = bound->launch();
  const Plan& plan = known.plan;
  alignas(16) uint8_t call[kMostBytes];
  std::memcpy(call, known.call, known.size);
  for (ptrdiff_t i = 2; i < count; ++i) *place_of(plan, call, i - 2) = integer(args[i]);
  const int captured = run(plan, call, known.size, reinterpret_cast<void*>(stream), known.tables);
  if (captured < 0) throw PythonError();
  return PyLong_FromLongLong(captured);
}

// ---- whole calls: an image -> a new tensor, without operands

// The stream to launch on.
int64_t stream_of(PyObject* function, PyObject* device) {
  const Reference number(PyObject_VectorcallDict(function, &device, 1, nullptr));
  if (number.get() == nullptr) throw PythonError();
  return integer(number.get());
}

void launch_into(Bound& bound, PyObject* out, int64_t source, int64_t stream) {
  become_better(bound, stream);
  const Launch& known = bound.launch();
  alignas(16) uint8_t call[kMostBytes];
  std::memcpy(call, known.call, known.size);
  const int64_t addresses[] = {address_of(out), source};
  std::memcpy(call, addresses, sizeof(addresses));
  if (PyErr_Occurred() != nullptr) throw PythonError();
  if (run(known.plan, call, known.size, reinterpret_cast<void*>(stream), known.tables) < 0) throw PythonError();
}

PyObject* launched_into_new(Bound& bound, PyObject* empty, PyObject* place, int64_t source, int64_t stream) {
  Reference out(PyObject_CallObject(empty, place));
  if (out.get() == nullptr) throw PythonError();
  launch_into(bound, out.get(), source, stream);
  return out.release();
}

int64_t source_of(PyObject* image) {
  const int64_t source = address_of(image);
  if (source == -1) throw PythonError();
  return source;
}

// What `fresh` takes. otherwise(image) does what is not aligned.
enum { kBound, kEmpty, kShape, kStreamOf, kDevice, kOtherwise, kParts };

PyObject* python_call(PyObject* parts, PyObject* const* args, ptrdiff_t count) {
  if (count != 1) throw BadCall{"an image, and nothing else"};
  const auto part = [parts](int place) { return PyTuple_GetItem(parts, place); };
  const int64_t source = source_of(args[0]);
  if (source % 16 != 0) return PyObject_VectorcallDict(part(kOtherwise), args, 1, nullptr);
  const int64_t stream = stream_of(part(kStreamOf), part(kDevice));
  return launched_into_new(bound_in(part(kBound)), part(kEmpty), part(kShape), source, stream);
}

PyMethodDef whole_call = {"call", throwing<python_call>, METH_FASTCALL, "Of an image: a new tensor."};

PyObject* python_fresh(PyObject*, PyObject* const* args, ptrdiff_t count) {
  if (count != 1 || PyTuple_Size(args[0]) != kParts) throw BadCall{"the parts of a call, as a tuple"};
  return PyCFunction_NewEx(&whole_call, args[0], nullptr);
}

// ---- and of any size

// refused: the exceptions that say that no kernel can be had, which is Python's to tell.
struct BindThere {
  PyObject *calls, *refused;

  PyObject* operator()(const uint8_t* request, int64_t size, int64_t aligned) const {
    try {
      return new_bound(calls, request, size, aligned != 0);
    } catch (const PythonError&) {
      if (PyErr_ExceptionMatches(refused) == 0) throw;
      PyErr_Clear();
      return nullptr;
    }
  }
};
using There = AnySizes<BindThere>;

// What `any_size` takes: `launcher.AnySizeCall`, the first two of which become the first here.
enum { kSizes, kCalls, kRefused, kMake, kDtype, kStridesLike, kStreamNow, kOfDevice, kElse, kAnySizeParts };

There& sizes_in(PyObject* parts) { return in_capsule<There>(PyTuple_GetItem(parts, kSizes)); }

// source: the address of the image, which is the last.
PyObject* bound_there(PyObject* parts, PyObject* const* args, ptrdiff_t count, int64_t source) {
  PyObject *const dtype = PyTuple_GetItem(parts, kDtype), *const strides_like = PyTuple_GetItem(parts, kStridesLike);
  return bound_to_sizes(sizes_in(parts), args, count, source % 16 == 0, dtype, strides_like);
}

PyObject* python_call_any_size(PyObject* parts, PyObject* const* args, ptrdiff_t count) {
  const auto part = [parts](int place) { return PyTuple_GetItem(parts, place); };
  if (count != sizes_in(parts).given() + 1) throw BadCall{"sizes and an image, and nothing else"};
  const int64_t source = source_of(args[count - 1]);
  const Reference kept(bound_there(parts, args, count, source));
  if (kept.get() == nullptr) return PyObject_VectorcallDict(part(kElse), args, count, nullptr);
  const int64_t stream = stream_of(part(kStreamNow), part(kOfDevice));
  Bound& bound = bound_in(PyTuple_GetItem(kept.get(), kBoundCall));
  PyObject* const place = PyTuple_GetItem(kept.get(), kPlaceOfOutput);
  return launched_into_new(bound, part(kMake), place, source, stream);
}

// A request, its rules, and the parts.
PyObject* python_any_size(PyObject*, PyObject* const* args, ptrdiff_t count) {
  static PyMethodDef call = {"call", throwing<python_call_any_size>, METH_FASTCALL, "Of an image of any size: a new tensor."};
  if (count != 3 || PyTuple_Size(args[2]) != kAnySizeParts - 1) throw BadCall{"a request, its rules, and parts"};
  const Data request = bytes(args[0]);
  const AnySize rules = rules_for(request, bytes(args[1]));
  auto* const made = new There(request, rules, {PyTuple_GetItem(args[2], 0), PyTuple_GetItem(args[2], 1)});
  const Reference parts(PyTuple_New(kAnySizeParts));
  PyTuple_SetItem(parts.get(), kSizes, capsule_of(made));
  for (int i = 1; i < kAnySizeParts; ++i) PyTuple_SetItem(parts.get(), i, owned(PyTuple_GetItem(args[2], i - 1)));
  return PyCFunction_NewEx(&call, parts.get(), nullptr);
}

// What any_size made, an image -> what is bound to its size, and the place of its output; None where Python binds it.
PyObject* python_bound_of(PyObject*, PyObject* const* args, ptrdiff_t count) {
  if (count < 2 || PyCFunction_GetFunction(args[0]) != throwing<python_call_any_size>) {
    if (PyErr_Occurred() != nullptr) throw PythonError();
    throw BadCall{"bound_of takes what any_size made, and an image"};
  }
  PyObject* const found = bound_there(PyCFunction_GetSelf(args[0]), args + 1, count - 1, source_of(args[count - 1]));
  return found == nullptr ? none() : found;
}

// ---- batches of images of any size, by one launch

// What `sized` takes: capsules of SizedBatch and of the launches of the kernel and of what makes tables, and functions.
enum { kBatch, kKernel, kTapMaker, kStream, kOnDevice, kNew, kStaged, kThere, kRead, kSizedParts };

constexpr int64_t kMostBlocks = 65535;  // from plane to plane

template <class T>
T& in_part(PyObject* parts, int place) {
  return in_capsule<T>(PyTuple_GetItem(parts, place));
}

PyObject* tensor_of(PyObject* parts, int make, int64_t bytes) {
  const Reference size(PyLong_FromLongLong(bytes));
  return called_with(PyTuple_GetItem(parts, make), size.get());
}

int64_t address_in(const Reference& tensor) {
  const int64_t address = address_of(tensor.get());
  if (PyErr_Occurred() != nullptr) throw PythonError();
  return address;
}

void run_or_throw(const Plan& plan, void* call, size_t size, int64_t stream) {
  if (run(plan, call, size, reinterpret_cast<void*>(stream)) < 0) throw PythonError();
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
  const Reference there(called_with(PyTuple_GetItem(parts, kThere), staged.get()));
  const int64_t address = address_in(there);
  if (tables != 0) {
    Plan plan = in_part<Bound>(parts, kTapMaker).first.plan;
    plan.blocks[0] = tables;
    TapsCall made{reinterpret_cast<const TapRecipe*>(address), tables, {}};
    run_or_throw(plan, &made, sizeof(made), stream);
  }
  Plan plan = in_part<Bound>(parts, kKernel).first.plan;
  int64_t number = min(pattern.planes, kMostBlocks / count), blocks[] = {pattern.along, pattern.down, number * count};
  if (of_tiles != 0) {  // which blocks take one after another
    number = table.tiles.size();
    blocks[0] = min(number, pattern.along);
    blocks[2] = 1;
  }
  std::memcpy(plan.blocks, blocks, sizeof(blocks));
  plan.shared_bytes = table.shared_bytes;
  int64_t whole[] = {address + before, number};
  run_or_throw(plan, whole, sizeof(whole), stream);
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
  if (count != 3) throw BadCall{"an output, a tuple of images, and places"};
  auto& batch = in_part<SizedBatch>(parts, kBatch);
  const bool all = args[2] == &_Py_NoneStruct;
  const int64_t wanted = PyTuple_Size(all ? args[1] : args[2]);
  if (wanted < 0) throw PythonError();
  const int64_t out = address_of(args[0]);
  if (PyErr_Occurred() != nullptr) throw PythonError();
  const Reference number(called_with(PyTuple_GetItem(parts, kStream), PyTuple_GetItem(parts, kOnDevice)));
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
}

// The parts, the first of them a pattern, its row, and templates as bytes; None where it is none of theirs.
PyObject* python_sized(PyObject*, PyObject* const* args, ptrdiff_t count) {
  static PyMethodDef launch = {"launch", throwing<python_launch_sized>, METH_FASTCALL, "Images of any size; the places left."};
  if (count != 4 || PyTuple_Size(args[3]) != kSizedParts - 1) throw BadCall{"a pattern, a row, templates and parts"};
  const Data pattern = bytes(args[0]), row = bytes(args[1]), written = bytes(args[2]);
  if (pattern.size != sizeof(RowPattern)) throw BadCall{"a pattern of another size than the launcher's"};
  RowPattern copy;
  std::memcpy(&copy, pattern.data, sizeof(copy));
  Templates templates;
  templates.learn_all(written.data, written.size);
  auto* const batch = new SizedBatch{{copy, row.data, row.size, move(templates)}, SeenRows(row.size), {}};
  const Reference capsule(capsule_of(batch));
  if (!batch->rows.holds()) return none();
  const Reference parts(PyTuple_New(kSizedParts));
  PyTuple_SetItem(parts.get(), kBatch, owned(capsule.get()));
  for (int i = 1; i < kSizedParts; ++i) PyTuple_SetItem(parts.get(), i, owned(PyTuple_GetItem(args[3], i - 1)));
  return PyCFunction_NewEx(&launch, parts.get(), nullptr);
}

PyObject* python_counts(PyObject*, PyObject* const*, ptrdiff_t) {
  const int64_t counts[] = {__atomic_load_n(&launched, __ATOMIC_RELAXED), __atomic_load_n(&makers_launched, __ATOMIC_RELAXED),
                            made_tables + DeviceCalls::tables_made()};
  return numbers(counts, 3);
}

PyMethodDef functions[] = {
    {"bind", throwing<python_bind>, METH_FASTCALL, "A call with all it needs but addresses."},
    {"program", throwing<python_program>, METH_FASTCALL, "A program on a device, to bind requests to."},
    {"bind_request", throwing<python_bind_request>, METH_FASTCALL, "A call of such a program, with all it needs but addresses."},
    {"tables", throwing<python_tables>, METH_FASTCALL, "What a bound call reads."},
    {"any_size", throwing<python_any_size>, METH_FASTCALL, "A program's calls, as a function of an image of any size."},
    {"bound_of", throwing<python_bound_of>, METH_FASTCALL, "What such a function binds to an image, or None."},
    {"launch", throwing<python_launch>, METH_FASTCALL, "Launches what was bound; whether a graph is being captured."},
    {"fresh", throwing<python_fresh>, METH_FASTCALL, "What was bound, as a function of an image."},
    {"sized", throwing<python_sized>, METH_FASTCALL, "What launches images of any size, whose steps follow from it; or None."},
    {"counts", throwing<python_counts>, METH_FASTCALL, "Launches, those of what makes tables, and tables made for images of any size."},
    {"again", python_again, METH_FASTCALL, "A call, to be made once more where it is the one before."},
    {"read_by_handles", python_read_by_handles, METH_FASTCALL, "How tensors are asked from now on."},
    {"dispatch_by", throwing<python_dispatch_by>, METH_FASTCALL, "How kernels in the dispatcher know torch."},
    {"operator", throwing<python_operator>, METH_FASTCALL, "A kernel for the dispatcher, as a number."},
    {"put", throwing<python_put>, METH_FASTCALL, "Puts it into the dispatcher."},
    {"take_away", throwing<python_take_away>, METH_FASTCALL, "Takes it away."},
    {"direct", throwing<python_direct>, METH_FASTCALL, "Whether such kernels make calls without Python."},
};

}  // namespace
}  // namespace polyphase

// Those that need no driver.
extern "C" __attribute__((visibility("default"))) PyObject* polyphase_device_functions() {
  return polyphase::as_tuple(polyphase::device_functions);
}

// The addresses of cuLaunchKernel, cuCtxGetCurrent, cuCtxPushCurrent, cuCtxPopCurrent, cuStreamIsCapturing and cuLaunchKernelEx, and then
// `MemoryFunctions`.
extern "C" __attribute__((visibility("default"))) PyObject* polyphase_functions(
    const int64_t* addresses) {
  using namespace polyphase;
  launch_kernel = reinterpret_cast<LaunchKernel>(addresses[0]);
  current_context = reinterpret_cast<GetContext>(addresses[1]);
  push_context = reinterpret_cast<PushContext>(addresses[2]);
  pop_context = reinterpret_cast<GetContext>(addresses[3]);
  is_capturing = reinterpret_cast<IsCapturing>(addresses[4]);
  launch_kernel_early = reinterpret_cast<LaunchKernelEx>(addresses[5]);
  std::memcpy(&memory_functions, addresses + 6, sizeof(memory_functions));
  dispatched().run = run_directly;
  return as_tuple(functions);
}
