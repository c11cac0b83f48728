// From Python to a kernel, in two steps: `bind` takes a request and gives what is bound, `launch` takes that and the
// addresses of tensors, lets the GIL go and runs.
#include <new>

#include "polyphase/launch/bind.h"
#include "polyphase/launch/python_api.h"

namespace polyphase {
namespace {

int64_t launched = 0;  // atomic
PyObject* get_num_threads = nullptr;  // torch's function of this name

struct PythonError {};  // already set

int64_t integer(PyObject* object) {
  const long long value = PyLong_AsLongLong(object);
  if (value == -1 && PyErr_Occurred() != nullptr) throw PythonError();
  return value;
}

void* address(PyObject* object) { return reinterpret_cast<void*>(integer(object)); }

// As many as torch says, asked only where more than one would be woken.
int64_t threads_for(const Bound& bound) {
  if (bound.most_threads <= 1) return 1;
  PyObject* count = PyObject_CallNoArgs(get_num_threads);
  if (count == nullptr) throw PythonError();
  const int64_t threads = PyLong_AsLongLong(count);
  Py_DecRef(count);
  return max<int64_t>(1, min(threads, bound.most_threads));
}

// bound, target, source, then coordinates (warps), the gradients of image and coordinates (warps' gradients),
// vectors and tensors
void launch(PyObject* const* args, ptrdiff_t count) {
  const Bound* bound = static_cast<const Bound*>(PyCapsule_GetPointer(args[0], nullptr));
  if (bound == nullptr) throw PythonError();
  Bound::AnyCall copy = bound->call;
  KernelCall& call = copy.any;
  if (count != 1 + bound->buffer_count + call.vector_count + call.tensor_count) {
    throw BadCall{"launch takes what is bound, and as many tensors as it was bound to"};
  }
  call.threads = threads_for(*bound);
  call.target = address(args[1]);
  call.source = address(args[2]);
  if (bound->buffer_count > 2) call.coordinates = address(args[3]);
  if (bound->buffer_count > 3) {
    call.image_gradient = address(args[4]);
    call.coordinate_gradient = address(args[5]);
  }
  PyObject* const* operands = args + 1 + bound->buffer_count;
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

// Runs `body`, C++ errors turned into Python's.
template <class Function>
PyObject* guarded(Function body) {
  try {
    return body();
  } catch (const PythonError&) {
  } catch (const std::bad_alloc&) {
    PyErr_SetString(PyExc_MemoryError, "not enough memory for the rows of an image");
  } catch (const TooManyDimensions&) {
    PyErr_SetString(PyExc_NotImplementedError, "too many dimensions for one kernel");
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

struct Data {
  const uint8_t* data;
  ptrdiff_t size;
};

Data bytes(PyObject* object) {
  char* data;
  ptrdiff_t size;
  if (PyBytes_AsStringAndSize(object, &data, &size) < 0) throw PythonError();
  return {reinterpret_cast<const uint8_t*>(data), size};
}

PyObject* python_bind(PyObject*, PyObject* const* args, ptrdiff_t count) {
  return guarded([&] {
    if (count != 1) throw BadCall{"bind takes a request"};
    const Data request = bytes(args[0]);
    Owned owned;
    bind(request.data, request.size, *owned.bound);
    PyObject* capsule = PyCapsule_New(owned.bound, nullptr, release);
    if (capsule == nullptr) throw PythonError();
    owned.bound = nullptr;  // the capsule's from here on
    return capsule;
  });
}

PyObject* python_launch(PyObject*, PyObject* const* args, ptrdiff_t count) {
  return guarded([&] {
    if (count < 3) throw BadCall{"launch takes what is bound and two tensors at least"};
    launch(args, count);
    return PyLong_FromLongLong(0);
  });
}

template <class T>
PyObject* as_bytes(const Buffer<T>& buffer) {
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(buffer.data()), buffer.size() * sizeof(T));
}

// sampler, in_size, transposed, recipe
PyObject* python_taps(PyObject*, PyObject* const* args, ptrdiff_t count) {
  return guarded([&] {
    if (count != 4) throw BadCall{"taps takes a sampler, a size, whether the adjoint is wanted, and a recipe"};
    const auto* sampler = reinterpret_cast<const Sampler*>(integer(args[0]));
    const Data recipe = bytes(args[3]);
    const int64_t steps = recipe.size / static_cast<int64_t>(sizeof(Step));
    const TapTable table = make_taps(
        {0, 0, integer(args[1]), integer(args[2]), steps, reinterpret_cast<const Step*>(recipe.data)}, *sampler);
    PyObject* const items[] = {PyLong_FromLongLong(table.in_size), as_bytes(table.begin), as_bytes(table.index),
                               as_bytes(table.weight), as_bytes(table.border), PyLong_FromLongLong(table.precision),
                               PyLong_FromLongLong(table.index_only)};
    constexpr int kItems = sizeof(items) / sizeof(items[0]);
    PyObject* tuple = PyTuple_New(kItems);
    for (int i = 0; i < kItems; ++i) PyTuple_SetItem(tuple, i, items[i]);
    return tuple;
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
    {"taps", python_taps, METH_FASTCALL, "The table of an axis: (in_size, begin, index, weight, border, precision, index_only)"},
    {"counts", python_counts, METH_FASTCALL, "(kernels launched, tables made, tables found in the cache)"},
    {"forget", python_forget, METH_FASTCALL, "Empties the cache of tables."},
};

}  // namespace
}  // namespace polyphase

// `threads`: torch.get_num_threads, which outlives this library.
extern "C" __attribute__((visibility("default"))) PyObject* polyphase_functions(PyObject* threads) {
  polyphase::get_num_threads = threads;
  constexpr int kCount = sizeof(polyphase::functions) / sizeof(polyphase::functions[0]);
  PyObject* tuple = PyTuple_New(kCount);
  for (int i = 0; i < kCount; ++i) {
    PyTuple_SetItem(tuple, i, PyCFunction_NewEx(&polyphase::functions[i], nullptr, nullptr));
  }
  return tuple;
}
