// From Python to a kernel, in two steps: `bind` takes a request and gives what is bound, `launch` takes that and tensors,
// lets the GIL go and runs. `fresh` and `any_size` make functions of both, which make their output themselves.
#include <new>

#include "polyphase/launch/again.h"
#include "polyphase/launch/any_size.h"
#include "polyphase/launch/bind.h"
#include "polyphase/launch/python_objects.h"
#include "polyphase/launch/ways.h"

namespace polyphase {
namespace {

int64_t launched = 0;  // atomic
PyObject* get_num_threads = nullptr;  // torch's function of this name

int64_t torch_threads() {
  PyObject* count = PyObject_CallNoArgs(get_num_threads);
  if (count == nullptr) throw PythonError();
  const int64_t threads = PyLong_AsLongLong(count);
  Py_DecRef(count);
  return max<int64_t>(1, threads);
}

// What a launch is given: the output, then as many tensors as the call was bound to.
struct Addresses {
  static constexpr int64_t kMost = 5 + 2 * kMaxOperands;
  int64_t count = 0;
  void* data[kMost];
};

// A call that lacks nothing but a number of threads.
struct Ready {
  const Kernel* kernel;
  int64_t most_threads;
  Bound::AnyCall call;

  void run(int64_t threads) {
    call.any.threads = max<int64_t>(1, min(threads, most_threads));
    kernel->run(call.any);
  }
};

// Target, source, then coordinates (warps), the gradients of image and coordinates (warps' gradients), vectors and tensors.
Ready ready(const Bound& bound, const Addresses& given) {
  Ready result = {bound.kernel, bound.most_threads, bound.call};
  KernelCall& call = result.call.any;
  if (given.count != bound.buffer_count + call.vector_count + call.tensor_count) {
    throw BadCall{"launch takes what is bound, and as many tensors as it was bound to"};
  }
  call.target = given.data[0];
  call.source = given.data[1];
  if (bound.buffer_count > 2) call.coordinates = given.data[2];
  if (bound.buffer_count > 3) {
    call.image_gradient = given.data[3];
    call.coordinate_gradient = given.data[4];
  }
  void* const* operands = given.data + bound.buffer_count;
  for (int64_t v = 0; v < call.vector_count; ++v) call.vectors[v].data = *operands++;
  for (int64_t t = 0; t < call.tensor_count; ++t) call.tensors[t].data = *operands++;
  return result;
}

// Runs `body` without the GIL; `launches`: how many kernels that are.
template <class Function>
void without_gil(int64_t launches, Function body) {
  PyThreadState* state = PyEval_SaveThread();
  try {
    body();
  } catch (...) {
    PyEval_RestoreThread(state);
    throw;
  }
  PyEval_RestoreThread(state);
  __atomic_add_fetch(&launched, launches, __ATOMIC_RELAXED);
}

void run(const Bound& bound, const Addresses& given) {
  Ready call = ready(bound, given);
  // Asked only where more than one would be woken.
  const int64_t threads = call.most_threads <= 1 ? 1 : torch_threads();
  without_gil(1, [&] { call.run(threads); });
}

// None stands for a gradient that is not needed.
void add_address(PyObject* tensor, Addresses& to) {
  if (to.count == Addresses::kMost) throw BadCall{"more tensors than a kernel takes"};
  const int64_t address = tensor == &_Py_NoneStruct ? 0 : address_of(tensor);
  if (address == -1) throw PythonError();
  to.data[to.count++] = reinterpret_cast<void*>(address);
}

const Bound& bound_in(PyObject* capsule) {
  const auto* bound = static_cast<const Bound*>(PyCapsule_GetPointer(capsule, nullptr));
  if (bound == nullptr) throw PythonError();
  return *bound;
}

// Calls that do not depend on each other: every thread takes the next when it is done with one.
struct Queue {
  Buffer<Ready> calls;
  int64_t next = 0;  // atomic

  static void work(void* context, int64_t, int64_t) {
    Queue& self = *static_cast<Queue*>(context);
    for (;;) {
      const int64_t i = __atomic_fetch_add(&self.next, 1, __ATOMIC_RELAXED);
      if (i >= self.calls.size()) return;
      self.calls[i].run(1);
    }
  }
};

void launch_all(PyObject* const* tuples, ptrdiff_t count) {
  Queue queue;
  queue.calls.resize(count);
  for (ptrdiff_t i = 0; i < count; ++i) {
    const ptrdiff_t size = PyTuple_Size(tuples[i]);
    if (size < 0) throw PythonError();
    if (size < 3) throw BadCall{"launch_all takes tuples of what launch takes"};
    Addresses addresses;
    for (ptrdiff_t a = 1; a < size; ++a) add_address(PyTuple_GetItem(tuples[i], a), addresses);
    queue.calls[i] = ready(bound_in(PyTuple_GetItem(tuples[i], 0)), addresses);
  }
  const int64_t threads = torch_threads();
  without_gil(count, [&] {
    if (count >= threads) return Threads::run(threads, threads, Queue::work, &queue);
    for (int64_t i = 0; i < count; ++i) queue.calls[i].run(threads);
  });
}

// A new tensor, which `empty` makes of the `place`, and a launch into it.
PyObject* run_into_new(const Bound& bound, PyObject* empty, PyObject* place, PyObject* const* tensors, ptrdiff_t count) {
  Reference out(PyObject_CallObject(empty, place));
  if (out.get() == nullptr) throw PythonError();
  Addresses addresses;
  add_address(out.get(), addresses);
  for (ptrdiff_t t = 0; t < count; ++t) add_address(tensors[t], addresses);
  run(bound, addresses);
  return out.release();
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

// Binds a request, and gives it away as a capsule.
PyObject* new_bound(const uint8_t* request, int64_t size) {
  Owned owned;
  bind(request, size, *owned.bound);
  PyObject* capsule = PyCapsule_New(owned.bound, nullptr, release);
  if (capsule == nullptr) throw PythonError();
  owned.bound = nullptr;  // the capsule's from here on
  return capsule;
}

PyObject* python_bind(PyObject*, PyObject* const* args, ptrdiff_t count) {
  return guarded([&] {
    if (count != 1) throw BadCall{"bind takes a request"};
    const Data request = bytes(args[0]);
    return new_bound(request.data, request.size);
  });
}

// bound, tensors
PyObject* python_launch(PyObject*, PyObject* const* args, ptrdiff_t count) {
  return guarded([&] {
    if (count < 3) throw BadCall{"launch takes what is bound and two tensors at least"};
    Addresses addresses;
    for (ptrdiff_t i = 1; i < count; ++i) add_address(args[i], addresses);
    run(bound_in(args[0]), addresses);
    return none();
  });
}

// ---- whole calls, from tensors to a new one

enum { kBound, kEmpty, kPlace, kFreshParts };

PyObject* python_call(PyObject* parts, PyObject* const* args, ptrdiff_t count) {
  return guarded([&] {
    const Bound& bound = bound_in(PyTuple_GetItem(parts, kBound));
    return run_into_new(bound, PyTuple_GetItem(parts, kEmpty), PyTuple_GetItem(parts, kPlace), args, count);
  });
}

PyMethodDef fresh_call = {"call", python_call, METH_FASTCALL, "Of tensors: a new one."};

// bound, what makes a tensor, its arguments
PyObject* python_fresh(PyObject*, PyObject* const* args, ptrdiff_t count) {
  return guarded([&] {
    if (count != kFreshParts) throw BadCall{"fresh takes what is bound, and how a tensor is made"};
    return made_of(&fresh_call, {owned(args[kBound]), owned(args[kEmpty]), owned(args[kPlace])});
  });
}

// ---- whole calls for any size

// Sizes and strides of tensors, to be found by.
struct Key {
  static constexpr int64_t kMost = 2 * (1 + 2 * kMaxDimensions);
  int64_t length = 0;
  int64_t numbers[kMost];

  Key(const Extent* tensors, int64_t count) {
    for (int64_t t = 0; t < count; ++t) {
      numbers[length++] = tensors[t].rank;
      for (int64_t d = 0; d < tensors[t].rank; ++d) {
        numbers[length++] = tensors[t].size[d];
        numbers[length++] = tensors[t].stride[d];
      }
    }
  }

  bool operator==(const Key& other) const {
    return length == other.length && std::memcmp(numbers, other.numbers, length * sizeof(int64_t)) == 0;
  }
};

// What was bound for sizes seen lately. The GIL is held wherever it is looked at.
class Sizes {
 public:
  static constexpr int64_t kMostCalls = 256;

  Sizes(const Data& request, const AnySize& rules) : rules_(rules) { request_.assign(request.data, request.size); }
  ~Sizes() {
    for (const Call& call : calls_) Py_DecRef(call.kept);
  }

  // What is bound, and the place of its output, as a tuple that the caller owns; null where Python has to do it.
  PyObject* get(const Extent* tensors, int64_t count, PyObject* dtype, PyObject* strides_like) {
    const Key key(tensors, count);
    if (latest_ < calls_.size() && calls_[latest_].key == key) return kept(latest_);
    const uint64_t hash = hash_of(key.numbers, key.length);
    for (int64_t c = 0; c < hashes_.size(); ++c) {
      if (hashes_[c] == hash && calls_[c].key == key) return kept(c);
    }
    PyObject* const made = bound_to(tensors, count, dtype, strides_like);
    if (made != nullptr) keep(key, hash, made);
    return made;
  }

 private:
  struct Call {
    Key key;
    PyObject* kept;
  };

  PyObject* kept(int64_t place) {
    latest_ = place;
    Py_IncRef(calls_[place].kept);
    return calls_[place].kept;
  }

  PyObject* bound_to(const Extent* tensors, int64_t count, PyObject* dtype, PyObject* strides_like) {
    Buffer<uint8_t> copy(request_.size());  // others may come here too, while Python is asked for something
    std::memcpy(copy.data(), request_.data(), request_.size());
    Request& request = *reinterpret_cast<Request*>(copy.data());
    Refit refit(rules_, reinterpret_cast<const Step*>(copy.data() + sizeof(request)), request);
    if (!refit.to(tensors[0], count > 1 ? &tensors[1] : nullptr)) return nullptr;
    const Reference shape(numbers(request.out_size, request.rank));
    const Reference strides(numbers(refit.follows_image() ? request.in_stride : request.out_stride, request.rank));
    if (refit.follows_image()) {
      PyObject* const args[] = {shape.get(), strides.get()};
      const Reference found(PyObject_Vectorcall(strides_like, args, 2, nullptr));
      if (found.get() == nullptr) throw PythonError();
      for (int64_t d = 0; d < request.rank; ++d) request.out_stride[d] = integer(PyTuple_GetItem(found.get(), d));
    }
    const Reference place(
        tuple_of({owned(shape.get()), numbers(request.out_stride, request.rank), owned(dtype)}));
    return tuple_of({new_bound(copy.data(), copy.size()), owned(place.get())});
  }

  // In the place of the oldest, where there are many.
  void keep(const Key& key, uint64_t hash, PyObject* made) {
    if (calls_.size() < kMostCalls) {
      calls_.reserve(calls_.size() + 1);  // no memory: no hash without a call
      hashes_.push_back(hash);
      calls_.push_back({key, owned(made)});
      latest_ = calls_.size() - 1;
      return;
    }
    latest_ = oldest_;
    oldest_ = (oldest_ + 1) % kMostCalls;
    const Reference before(calls_[latest_].kept);
    hashes_[latest_] = hash;
    calls_[latest_] = {key, owned(made)};
  }

  Buffer<uint8_t> request_;
  const AnySize rules_;
  Buffer<uint64_t> hashes_;  // side by side, of each
  Buffer<Call> calls_;
  int64_t latest_ = 0, oldest_ = 0;
};

void release_sizes(PyObject* capsule) { delete static_cast<Sizes*>(PyCapsule_GetPointer(capsule, nullptr)); }

enum { kSizes, kNew, kDtype, kStridesLike, kOtherwise, kAnySizeParts };

PyObject* python_call_any_size(PyObject* parts, PyObject* const* args, ptrdiff_t count) {
  return guarded([&] {
    auto* sizes = static_cast<Sizes*>(PyCapsule_GetPointer(PyTuple_GetItem(parts, kSizes), nullptr));
    if (sizes == nullptr) throw PythonError();
    if (count < 1 || count > 2) throw BadCall{"an image, and coordinates at most"};
    Extent tensors[2];
    for (ptrdiff_t t = 0; t < count; ++t) {
      if (tensors[t].read(args[t])) continue;
      if (PyErr_Occurred() != nullptr) throw PythonError();
      throw TooManyDimensions();
    }
    const Reference kept([&]() -> PyObject* {
      try {
        return sizes->get(tensors, count, PyTuple_GetItem(parts, kDtype), PyTuple_GetItem(parts, kStridesLike));
      } catch (const TooManyDimensions&) {
        return nullptr;
      }
    }());
    if (kept.get() == nullptr) return PyObject_Vectorcall(PyTuple_GetItem(parts, kOtherwise), args, count, nullptr);
    const Bound& bound = bound_in(PyTuple_GetItem(kept.get(), 0));
    return run_into_new(bound, PyTuple_GetItem(parts, kNew), PyTuple_GetItem(kept.get(), 1), args, count);
  });
}

// a request, its rules, what makes a tensor, its dtype, strides of an output in the order of others, what to call where
// sizes are not for this
PyObject* python_any_size(PyObject*, PyObject* const* args, ptrdiff_t count) {
  static PyMethodDef call = {"call", python_call_any_size, METH_FASTCALL, "Of tensors of any size: a new one."};
  return guarded([&] {
    if (count != kAnySizeParts + 1) throw BadCall{"any_size takes a request, its rules, and how a tensor is made"};
    const Data request = bytes(args[0]), rules = bytes(args[1]);
    if (rules.size != sizeof(AnySize) || request.size < static_cast<ptrdiff_t>(sizeof(Request))) {
      throw BadCall{"a request or rules of another size than the launcher's"};
    }
    AnySize copy;
    std::memcpy(&copy, rules.data, sizeof(copy));
    PyObject* const sizes = PyCapsule_New(new Sizes(request, copy), nullptr, release_sizes);
    return made_of(&call, {sizes, owned(args[2]), owned(args[3]), owned(args[4]), owned(args[5])});
  });
}

// ---- images of any size, whose steps follow from it

void release_sized(PyObject* capsule) { delete static_cast<SizedRequest*>(PyCapsule_GetPointer(capsule, nullptr)); }

enum { kSizedRequest, kNewOfSize, kDtypeOfSize };

// sizes, strides
PyObject* python_fresh_of_size(PyObject* parts, PyObject* const* args, ptrdiff_t count) {
  return guarded([&] {
    PyObject* const capsule = PyTuple_GetItem(parts, kSizedRequest);
    const auto* sized = static_cast<const SizedRequest*>(PyCapsule_GetPointer(capsule, nullptr));
    if (sized == nullptr) throw PythonError();
    if (count != 2 || PyTuple_Size(args[0]) != 3 || PyTuple_Size(args[1]) != 3) throw BadCall{"three sizes and strides"};
    int64_t size[3], stride[3];
    for (int d = 0; d < 3; ++d) {
      size[d] = integer(PyTuple_GetItem(args[0], d));
      stride[d] = integer(PyTuple_GetItem(args[1], d));
    }
    Buffer<uint8_t> request;
    if (!sized->fill(size, stride, &request)) return none();
    const auto& filled = *reinterpret_cast<const Request*>(request.data());
    const Reference bound(new_bound(request.data(), request.size()));
    PyObject* const dtype = owned(PyTuple_GetItem(parts, kDtypeOfSize));
    const Reference place(tuple_of({numbers(filled.out_size, 3), numbers(filled.out_stride, 3), dtype}));
    PyObject* const empty = owned(PyTuple_GetItem(parts, kNewOfSize));
    return made_of(&fresh_call, {owned(bound.get()), empty, owned(place.get())});
  });
}

// a request, transforms, the longest axis, the most elements of an output, what makes a tensor, its dtype
PyObject* python_sized(PyObject*, PyObject* const* args, ptrdiff_t count) {
  static PyMethodDef of_size = {"of_size", python_fresh_of_size, METH_FASTCALL, "Of sizes and strides: as of fresh."};
  return guarded([&] {
    if (count != 6) throw BadCall{"sized takes a request, transforms, two limits, and how a tensor is made"};
    const Data request = bytes(args[0]), steps = bytes(args[1]);
    if (request.size < static_cast<ptrdiff_t>(sizeof(Request)) || steps.size % sizeof(SizeStep) != 0) {
      throw BadCall{"a request or transforms of another size than the launcher's"};
    }
    const auto* first = reinterpret_cast<const SizeStep*>(steps.data);
    const int64_t transforms = steps.size / static_cast<int64_t>(sizeof(SizeStep));
    auto* const sized =
        new SizedRequest(request.data, request.size, first, transforms, integer(args[2]), integer(args[3]));
    const Reference capsule(PyCapsule_New(sized, nullptr, release_sized));
    if (!sized->holds()) return none();
    return made_of(&of_size, {owned(capsule.get()), owned(args[4]), owned(args[5])});
  });
}

PyObject* python_launch_all(PyObject*, PyObject* const* args, ptrdiff_t count) {
  return guarded([&] {
    launch_all(args, count);
    return none();
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
    return tuple_of({PyLong_FromLongLong(table.in_size), as_bytes(table.begin), as_bytes(table.index),
                     as_bytes(table.weight), as_bytes(table.border), PyLong_FromLongLong(table.precision),
                     PyLong_FromLongLong(table.index_only)});
  });
}

PyObject* python_counts(PyObject*, PyObject* const*, ptrdiff_t) {
  const TableCache& cache = TableCache::instance();
  const int64_t values[] = {__atomic_load_n(&launched, __ATOMIC_RELAXED), cache.made(), cache.cached()};
  return guarded([&] { return numbers(values, 3); });
}

PyObject* python_forget(PyObject*, PyObject* const*, ptrdiff_t) {
  TableCache::instance().clear();
  return none();
}

PyMethodDef functions[] = {
    {"bind", python_bind, METH_FASTCALL, "A kernel with all it needs but addresses."},
    {"launch", python_launch, METH_FASTCALL, "Runs what was bound."},
    {"fresh", python_fresh, METH_FASTCALL, "What was bound, as a function from tensors to a new one."},
    {"any_size", python_any_size, METH_FASTCALL, "Likewise, of tensors of any size."},
    {"again", python_again, METH_FASTCALL, "A call, to be made once more where it is the one before."},
    {"read_by_handles", python_read_by_handles, METH_FASTCALL, "How tensors are asked from now on."},
    {"taps", python_taps, METH_FASTCALL, "The table of an axis: (in_size, begin, index, weight, border, precision, index_only)"},
    {"counts", python_counts, METH_FASTCALL, "(kernels launched, tables made, tables found in the cache)"},
    {"launch_all", python_launch_all, METH_FASTCALL, "Runs what was bound, in any order, by as many threads as torch has."},
    {"sized", python_sized, METH_FASTCALL, "A request for images of any size, or None; its steps follow from that."},
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
