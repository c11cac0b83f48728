// From Python to a kernel, in two steps. `bind` takes sizes, strides and maps, finds the tables and arranges the
// dimensions; `launch` takes the addresses of an image and of its output, lets the GIL go and runs.
//
// Python has checked that what it hands over belongs together.
#include <cstring>
#include <new>

#include "polyphase/abi.h"
#include "polyphase/geometry.h"
#include "polyphase/python_api.h"
#include "polyphase/standard.h"
#include "polyphase/table_cache.h"
#include "polyphase/threads.h"

namespace polyphase {
namespace {

int64_t launched = 0;  // atomic

// Fewer elements than this are not worth waking a thread for.
constexpr int64_t kElementsPerThread = 32768;

constexpr const char* kTooMany = "too many weighted axes, or dimensions, for one kernel";

struct PythonError {};  // already set

struct BadCall {
  const char* message;
};

int64_t integer(PyObject* object) {
  const long long value = PyLong_AsLongLong(object);
  if (value == -1 && PyErr_Occurred() != nullptr) throw PythonError();
  return value;
}

PyObject* item(PyObject* tuple, ptrdiff_t i) {
  PyObject* object = PyTuple_GetItem(tuple, i);
  if (object == nullptr) throw PythonError();
  return object;
}

int64_t integer(PyObject* tuple, ptrdiff_t i) { return integer(item(tuple, i)); }

struct Data {
  const uint8_t* data;
  int64_t size;
};

Data bytes(PyObject* object) {
  char* data;
  ptrdiff_t size;
  if (PyBytes_AsStringAndSize(object, &data, &size) < 0) throw PythonError();
  return {reinterpret_cast<const uint8_t*>(data), size};
}

bool may_be_weighted(const Dimension& d, bool transposed) {
  for (int64_t s = 0; s < d.step_count; ++s) {
    if (d.steps[s].kind <= Step::kArea) return true;
    if (transposed && d.steps[s].kind != Step::kFlip) return true;
  }
  return false;
}

// What Python asked for, as C++. A Call that lacks only its addresses, and what it points at.
struct Bound {
  const Kernel* kernel;
  Call call = {};
  SharedTable tables[kMaxOuter + 3];
  int64_t table_count = 0;
  Buffer<uint8_t> borders;
};

struct Request {
  Bound& bound;
  const Sampler* mover;  // of axes that are not weighted; null where there is none
  bool transposed;
  int64_t element_bytes;
  Dimensions dimensions;
};

// (channel dimension, bytes of an element of each vector, (bytes, strides) of each tensor); launching brings addresses.
void read_operands(PyObject* operands, Request& request) {
  Call& call = request.bound.call;
  PyObject* vectors = item(operands, 1);
  PyObject* tensors = item(operands, 2);
  call.vector_count = PyTuple_Size(vectors);
  call.tensor_count = PyTuple_Size(tensors);
  if (call.vector_count > kMaxOperands || call.tensor_count > kMaxOperands) {
    throw BadCall{"too many operands for one kernel"};
  }
  for (int64_t v = 0; v < call.vector_count; ++v) call.vectors[v].element_bytes = integer(vectors, v);
  for (int64_t t = 0; t < call.tensor_count; ++t) {
    call.tensors[t].element_bytes = integer(item(tensors, t), 0);
    PyObject* strides = item(item(tensors, t), 1);
    for (int64_t d = 0; d < request.dimensions.size(); ++d) {
      request.dimensions[d].tensor_strides[t] = integer(strides, d);
    }
  }
  if (call.vector_count > 0) request.dimensions[integer(operands, 0)].channels = true;
}

void read_dimensions(PyObject* in_sizes, PyObject* in_strides, PyObject* out_sizes, PyObject* out_strides,
                     PyObject* recipes, Request& request) {
  const ptrdiff_t count = PyTuple_Size(recipes);
  if (count >= Dimensions::kMost) throw BadCall{kTooMany};
  for (ptrdiff_t i = 0; i < count; ++i) {
    Dimension d;
    d.in_size = integer(in_sizes, i);
    d.out_size = integer(out_sizes, i);
    d.in_stride = integer(in_strides, i);
    d.out_stride = integer(out_strides, i);
    const Data recipe = bytes(item(recipes, i));
    d.steps = reinterpret_cast<const Step*>(recipe.data);
    d.step_count = recipe.size / static_cast<int64_t>(sizeof(Step));
    d.weighted = may_be_weighted(d, request.transposed);
    if (!d.mapped() && d.in_size != d.out_size) throw BadCall{"an axis without a map changes its size"};
    request.dimensions.push_back(d);
  }
}

// A kernel that only moves sees an element as so many bytes, whatever its dtype.
void elements_as_bytes(Request& request) {
  for (int64_t i = 0; i < request.dimensions.size(); ++i) {
    request.dimensions[i].in_stride *= request.element_bytes;
    request.dimensions[i].out_stride *= request.element_bytes;
  }
  Dimension element;
  element.in_size = element.out_size = request.element_bytes;
  element.in_stride = element.out_stride = 1;
  request.dimensions.push_back(element);
}

// `channels` and `row_map` are for the axis that is read horizontally.
Axis axis(const Dimension& d, const Request& request, int64_t channels = 0, const RowMap** row_map = nullptr) {
  Axis result = {d.in_size, d.out_size, d.in_stride, d.out_stride, nullptr, 1};
  if (!d.mapped()) return result;
  Bound& bound = request.bound;
  const Sampler* sampler = d.weighted ? bound.call.sampler : request.mover;
  if (sampler == nullptr) throw BadCall{"an axis is only moved, and there is no sampler for it"};
  const int64_t element_bytes = row_map == nullptr ? 0 : bound.kernel->element_bytes;
  const int64_t in_size = request.transposed ? d.out_size : d.in_size;
  SharedTable& kept = bound.tables[bound.table_count++];
  kept = TableCache::instance().get(*sampler,
                                    {channels, element_bytes, in_size, request.transposed, d.step_count, d.steps});
  if (kept->taps().in_size != d.in_size || kept->taps().out_size != d.out_size) {
    throw BadCall{"an axis's sizes are not those of its map"};
  }
  result.taps = &kept->taps();
  result.most_taps = kept->most_taps();
  if (row_map != nullptr) *row_map = kept->row_map();
  return result;
}

void fill_call(const Geometry& g, const Request& request) {
  Call& call = request.bound.call;
  call.channels = g.pixel.out_size;
  call.in_channel_stride = g.pixel.in_stride;
  call.out_channel_stride = g.pixel.out_stride;
  call.x = axis(g.x, request, call.channels, &call.row_map);
  call.y = axis(g.y, request);
  call.z = axis(g.z, request);
  call.outer_count = g.outer.size();
  call.channel_axis = -1;
  for (int64_t a = 0; a < call.outer_count; ++a) {
    call.outer[a] = axis(g.outer[a], request);
    if (g.outer[a].channels) call.channel_axis = a;
  }
  for (int64_t t = 0; t < call.tensor_count; ++t) {
    Operand& tensor = call.tensors[t];
    tensor.x_stride = g.x.tensor_strides[t];
    tensor.y_stride = g.y.tensor_strides[t];
    tensor.z_stride = g.z.tensor_strides[t];
    tensor.channel_stride = g.pixel.tensor_strides[t];
    for (int64_t a = 0; a < call.outer_count; ++a) tensor.outer_strides[a] = g.outer[a].tensor_strides[t];
  }
  call.parallel = Threads::run;
}

// (values, bytes from one to the next, first stored number, bytes of a value, bytes of a stored value) or ().
void read_borders(PyObject* borders, Bound& bound) {
  if (PyTuple_Size(borders) == 0) return;
  const Data values = bytes(item(borders, 0));
  bound.borders.assign(values.data, values.size);
  bound.call.borders = bound.borders.data();
  bound.call.border_stride = integer(borders, 1);
  bound.call.first_stored = integer(borders, 2);
  bound.call.border_bytes = integer(borders, 3);
  bound.call.stored_border_bytes = integer(borders, 4);
}

int64_t threads_for(const Call& call, int64_t most) {
  int64_t in = call.x.in_size * call.y.in_size * call.z.in_size * call.channels;
  int64_t out = call.x.out_size * call.y.out_size * call.z.out_size * call.channels;
  for (int64_t a = 0; a < call.outer_count; ++a) {
    in *= call.outer[a].in_size;
    out *= call.outer[a].out_size;
  }
  return max<int64_t>(1, min(most, max(in, out) / kElementsPerThread));
}

// kernel, sampler, mover, transposed, element_bytes, in_sizes, in_strides, out_sizes, out_strides, recipes, borders,
// operands
void bind(PyObject* const* args, Bound& bound) {
  bound.kernel = reinterpret_cast<const Kernel*>(integer(args[0]));
  bound.call.sampler = reinterpret_cast<const Sampler*>(integer(args[1]));
  const auto* mover = reinterpret_cast<const Sampler*>(integer(args[2]));
  Request request = {bound, mover, integer(args[3]) != 0, integer(args[4]), {}};
  read_dimensions(args[5], args[6], args[7], args[8], args[9], request);
  read_borders(args[10], bound);
  if (PyTuple_Size(args[11]) > 0) read_operands(args[11], request);
  if (request.element_bytes > 0) elements_as_bytes(request);
  Geometry geometry;
  const int64_t element_bytes = max<int64_t>(request.element_bytes, 1);
  if (!arrange(request.dimensions, element_bytes, bound.call.tensor_count, &geometry)) {
    throw BadCall{kTooMany};
  }
  fill_call(geometry, request);
}

const void* address(PyObject* object) { return reinterpret_cast<const void*>(integer(object)); }

// bound, source, target, threads, vectors..., tensors...
void launch(PyObject* const* args, ptrdiff_t count) {
  const Bound* bound = static_cast<const Bound*>(PyCapsule_GetPointer(args[0], nullptr));
  if (bound == nullptr) throw PythonError();
  Call call = bound->call;
  if (count != 4 + call.vector_count + call.tensor_count) throw BadCall{"launch takes 4 arguments and all operands"};
  call.source = address(args[1]);
  call.target = const_cast<void*>(address(args[2]));
  call.threads = threads_for(call, integer(args[3]));
  PyObject* const* operands = args + 4;
  for (int64_t v = 0; v < call.vector_count; ++v) call.vectors[v].data = address(*operands++);
  for (int64_t t = 0; t < call.tensor_count; ++t) call.tensors[t].data = address(*operands++);
  PyThreadState* state = PyEval_SaveThread();
  try {
    bound->kernel->run(call);
  } catch (...) {
    PyEval_RestoreThread(state);
    throw;
  }
  PyEval_RestoreThread(state);
  __atomic_add_fetch(&launched, 1, __ATOMIC_RELAXED);
}

// kernel, call, threads, buffers...; the call is copied, and what Packed holds is filled in.
void launch_packed(PyObject* const* args, ptrdiff_t count) {
  constexpr int64_t kMostBytes = 4096;
  constexpr ptrdiff_t kFirstBuffer = 3, kMostBuffers = sizeof(Packed::buffers) / sizeof(void*);
  using Run = void (*)(const Packed& call);
  const Run* kernel = reinterpret_cast<const Run*>(integer(args[0]));
  const Data call = bytes(args[1]);
  if (count - kFirstBuffer > kMostBuffers || call.size > kMostBytes) throw BadCall{"too long a call"};
  alignas(Packed) uint8_t copy[kMostBytes];
  std::memcpy(copy, call.data, static_cast<size_t>(call.size));
  Packed& packed = *reinterpret_cast<Packed*>(copy);
  for (ptrdiff_t i = kFirstBuffer; i < count; ++i) {
    packed.buffers[i - kFirstBuffer] = reinterpret_cast<void*>(integer(args[i]));
  }
  packed.threads = integer(args[2]);
  packed.parallel = Threads::run;
  PyThreadState* state = PyEval_SaveThread();
  try {
    (*kernel)(packed);
  } catch (...) {
    PyEval_RestoreThread(state);
    throw;
  }
  PyEval_RestoreThread(state);
  __atomic_add_fetch(&launched, 1, __ATOMIC_RELAXED);
}

// Runs `body`, C++ errors turned into Python's.
template <class Function>
PyObject* guarded(Function body) {
  try {
    return body();
  } catch (const PythonError&) {
  } catch (const std::bad_alloc&) {
    PyErr_SetString(PyExc_MemoryError, "not enough memory for the rows of an image");
  } catch (const BadCall& bad) {
    PyErr_SetString(PyExc_ValueError, bad.message);
  }
  return nullptr;
}

// Deletes what was not given away.
struct Owned {
  Bound* bound = new Bound;

  ~Owned() { delete bound; }
};

void release(PyObject* capsule) { delete static_cast<Bound*>(PyCapsule_GetPointer(capsule, nullptr)); }

PyObject* python_bind(PyObject*, PyObject* const* args, ptrdiff_t count) {
  return guarded([&] {
    if (count != 12) throw BadCall{"bind takes 12 arguments"};
    Owned owned;
    bind(args, *owned.bound);
    PyObject* capsule = PyCapsule_New(owned.bound, nullptr, release);
    if (capsule == nullptr) throw PythonError();
    owned.bound = nullptr;  // the capsule's from here on
    return capsule;
  });
}

PyObject* python_launch(PyObject*, PyObject* const* args, ptrdiff_t count) {
  return guarded([&] {
    if (count < 4) throw BadCall{"launch takes 4 arguments and all operands"};
    launch(args, count);
    return PyLong_FromLongLong(0);
  });
}

PyObject* python_launch_packed(PyObject*, PyObject* const* args, ptrdiff_t count) {
  return guarded([&] {
    if (count < 4) throw BadCall{"launch_packed takes a kernel, a call, threads and buffers"};
    launch_packed(args, count);
    return PyLong_FromLongLong(0);
  });
}

PyObject* python_counts(PyObject*, PyObject* const*, ptrdiff_t) {
  const TableCache& cache = TableCache::instance();
  PyObject* counts = PyTuple_New(3);
  const int64_t values[] = {__atomic_load_n(&launched, __ATOMIC_RELAXED), cache.made(), cache.cached()};
  for (int i = 0; i < 3; ++i) PyTuple_SetItem(counts, i, PyLong_FromLongLong(values[i]));
  return counts;
}

PyObject* python_forget(PyObject*, PyObject* const*, ptrdiff_t) {
  TableCache::instance().clear();
  return PyLong_FromLongLong(0);
}

PyMethodDef functions[] = {
    {"bind", python_bind, METH_FASTCALL, "A kernel with all it needs but addresses."},
    {"launch", python_launch, METH_FASTCALL, "Runs what was bound."},
    {"launch_packed", python_launch_packed, METH_FASTCALL, "Runs a kernel on a call that Python packed as bytes."},
    {"counts", python_counts, METH_FASTCALL, "(kernels launched, tables made, tables found in the cache)"},
    {"forget", python_forget, METH_FASTCALL, "Empties the cache of tables."},
};

}  // namespace
}  // namespace polyphase

extern "C" __attribute__((visibility("default"))) PyObject* polyphase_functions() {
  constexpr int kCount = sizeof(polyphase::functions) / sizeof(polyphase::functions[0]);
  PyObject* tuple = PyTuple_New(kCount);
  for (int i = 0; i < kCount; ++i) {
    PyTuple_SetItem(tuple, i, PyCFunction_NewEx(&polyphase::functions[i], nullptr, nullptr));
  }
  return tuple;
}
