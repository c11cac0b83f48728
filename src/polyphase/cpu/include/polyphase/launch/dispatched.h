// Kernels of operators in torch's dispatcher. A call that was made before goes from there to our kernel, without Python and
// its lock; every other is Python's, the plain twin (`Override` of `compile/overrides.py`), which says how to make it again.
#pragma once

#include <new>

#include "polyphase/launch/python_objects.h"
#include "polyphase/launch/torch_values.h"

namespace polyphase {

// Of a launcher: runs what is bound, without Python's lock, on addresses: of the output and what is read. False where Python
// has to do it.
using RunDirectly = bool (*)(const void* bound, int32_t device, void* const* addresses, int64_t count);

// A call, and how it is made without Python, if it can be. It does not change.
struct DirectCall {
  static constexpr int64_t kMostRead = 3;

  CallKey key;
  Reference kept;  // what is bound, as a capsule
  const void* bound = nullptr;
  int64_t rank = 0, reads = 0;  // tensors, the first of those given
  int64_t size[kMaxDimensions], stride[kMaxDimensions];
  DirectCall* before;

  DirectCall(const CallKey& of, PyObject* capsule) : key(of), kept(owned(capsule)) {}
};

// Of one operator, in chains by their hash. They are read without a lock, and changed by whoever holds Python's.
class DirectCalls {
 public:
  // Calls `body` with what is known of a call, if anything; what was found is not freed meanwhile.
  template <class Function>
  void with(const CallKey& key, Function body) {
    __atomic_add_fetch(&readers_, 1, __ATOMIC_SEQ_CST);
    const DirectCall* call = __atomic_load_n(&chains_[key.hash() % kChains], __ATOMIC_SEQ_CST);
    while (call != nullptr && !(call->key == key)) call = call->before;
    if (call != nullptr) body(*call);
    __atomic_sub_fetch(&readers_, 1, __ATOMIC_SEQ_CST);
  }

  // Whether a call that is not known was asked for before, so that it is worth to be.
  bool is_asked_for_again(const CallKey& key) {
    const uint64_t hash = key.hash();
    for (const uint64_t one : missed_) {
      if (one == hash) return true;
    }
    missed_[next_missed_++ % kMostMissed] = hash;
    return false;
  }

  // Where there are many, all before it are forgotten.
  void add(DirectCall* call) {
    if (count_ == kMost) drop_all();
    ++count_;
    DirectCall*& chain = chains_[call->key.hash() % kChains];
    call->before = chain;
    __atomic_store_n(&chain, call, __ATOMIC_SEQ_CST);
  }

 private:
  static constexpr int64_t kMost = 128, kMostMissed = 32, kChains = 64;

  // Who comes later finds none of these; they are freed when nobody is left who came before.
  void drop_all() {
    for (DirectCall*& chain : chains_) {
      DirectCall** end = &dropped_;
      while (*end != nullptr) end = &(*end)->before;
      *end = __atomic_exchange_n(&chain, nullptr, __ATOMIC_SEQ_CST);
    }
    count_ = 0;
    if (__atomic_load_n(&readers_, __ATOMIC_SEQ_CST) != 0) return;
    while (dropped_ != nullptr) {
      DirectCall* const one = dropped_;
      dropped_ = one->before;
      delete one;
    }
  }

  DirectCall* chains_[kChains] = {};
  DirectCall* dropped_ = nullptr;
  int64_t readers_ = 0, count_ = 0;
  uint64_t missed_[kMostMissed] = {}, next_missed_ = 0;
};

class Gil {
 public:
  Gil() : state_(PyGILState_Ensure()) {}
  ~Gil() { PyGILState_Release(state_); }
  Gil(const Gil&) = delete;

 private:
  const int state_;
};

// What all operators of a launcher share.
struct Dispatched {
  RunDirectly run;
  bool direct = false;  // whether calls are made without Python
};

inline Dispatched& dispatched() {
  static Dispatched shared;
  return shared;
}

// With tensors and one result, a tensor.
class Operator {
 public:
  static constexpr int64_t kMostArguments = 8;

  const char *space, *name, *key;  // of Python's, which are kept
  ArgumentType types[kMostArguments];
  int64_t arguments = 0;
  PyObject *call, *direct;  // with the arguments: the result; what makes it, or None
  void* library = nullptr;

  void run(Word* stack) {
    Arguments given{*this, stack};
    CallKey key;
    bool whole = true;
    for (int64_t i = 0; i < arguments; ++i) whole = whole && key.add(types[i], stack[i]);
    void* result = nullptr;
    bool is_new = whole && __atomic_load_n(&dispatched().direct, __ATOMIC_RELAXED);
    if (is_new) {
      calls_.with(key, [&](const DirectCall& one) {
        is_new = false;
        if (one.bound != nullptr) result = make(one, stack);
      });
    }
    if (result == nullptr) result = by_python(stack, is_new ? &key : nullptr);
    given.drop();
    stack[0] = reinterpret_cast<Word>(result);
  }

 private:
  // Given back whatever happens.
  struct Arguments {
    const Operator& of;
    Word* stack;

    ~Arguments() { drop(); }
    void drop() {
      for (int64_t i = 0; stack != nullptr && i < of.arguments; ++i) polyphase::drop(of.types[i], stack[i]);
      stack = nullptr;
    }
  };

  // A handle of the result; null where Python has to make it.
  static void* make(const DirectCall& call, const Word* stack) {
    const TorchFunctions& torch = torch_functions();
    const TensorFunctions& read = tensor_reader().functions;
    void* addresses[1 + DirectCall::kMostRead];
    for (int64_t t = 0; t < call.reads; ++t) {
      if (read.data(pointer(stack[t]), &addresses[1 + t]) != 0) return nullptr;
    }
    void *const image = pointer(stack[0]), *made;
    int32_t dtype, type, index;
    if (torch.dtype(image, &dtype) != 0 || torch.device_type(image, &type) != 0 || torch.device_index(image, &index) != 0) {
      return nullptr;
    }
    if (torch.empty_strided(call.rank, call.size, call.stride, dtype, type, index, &made) != 0) return nullptr;
    if (read.data(made, &addresses[0]) == 0 && dispatched().run(call.bound, index, addresses, 1 + call.reads)) return made;
    torch.delete_tensor(made);
    return nullptr;
  }

  // A handle of the result.
  void* by_python(const Word* stack, const CallKey* key) {
    const Gil held;
    PyObject* values[kMostArguments];
    int64_t given = arguments, made = 0;
    while (types[given - 1].form == ArgumentType::kOptional && stack[given - 1] == 0) --given;  // as torch calls Python
    while (made < given && (values[made] = python_value(types[made], stack[made])) != nullptr) ++made;
    const Reference result(made < given ? nullptr : PyObject_VectorcallDict(call, values, made, nullptr));
    void* const handle = result.get() == nullptr ? nullptr : handle_of(result.get());
    if (handle != nullptr && key != nullptr && calls_.is_asked_for_again(*key)) remember(*key, values, made);
    for (int64_t i = 0; i < made; ++i) Py_DecRef(values[i]);
    if (handle == nullptr) throw python_error();
    return handle;
  }

  static void* handle_of(PyObject* tensor) {
    void* made;
    void* const handle = tensor_reader().handle(tensor);
    if (handle != nullptr && torch_functions().new_handle(handle, &made) == 0) return made;
    if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_ValueError, "an operator's result is not a tensor");
    return nullptr;
  }

  // (what is bound, sizes, strides, how many tensors it reads), or None. What goes wrong here changes no result: such a call
  // is always Python's.
  void remember(const CallKey& key, PyObject* const* values, int64_t count) {
    const Reference found(PyObject_VectorcallDict(direct, values, count, nullptr));
    const bool some = found.get() != nullptr && found.get() != &_Py_NoneStruct;
    PyObject* const capsule = some ? PyTuple_GetItem(found.get(), 0) : &_Py_NoneStruct;
    auto* const made = new (std::nothrow) DirectCall(key, capsule);
    if (made != nullptr && some) {
      made->bound = PyCapsule_GetPointer(capsule, nullptr);
      PyObject *const sizes = PyTuple_GetItem(found.get(), 1), *const strides = PyTuple_GetItem(found.get(), 2);
      made->rank = PyTuple_Size(sizes);
      made->reads = PyLong_AsLongLong(PyTuple_GetItem(found.get(), 3));
      const bool fits = made->rank <= kMaxDimensions && made->reads >= 1 && made->reads <= DirectCall::kMostRead;
      for (int64_t d = 0; fits && d < made->rank; ++d) {
        made->size[d] = PyLong_AsLongLong(PyTuple_GetItem(sizes, d));
        made->stride[d] = PyLong_AsLongLong(PyTuple_GetItem(strides, d));
      }
      if (!fits || PyErr_Occurred() != nullptr) made->bound = nullptr;
    }
    if (made != nullptr) calls_.add(made);
    if (PyErr_Occurred() != nullptr) PyErr_Clear();
  }

  DirectCalls calls_;
};

// torch's kernels have no data of their own: one for each place.
struct Operators {
  static constexpr int kMost = 64;
  static inline Operator* all[kMost] = {};
  static inline int count = 0;

  template <int kPlace>
  static void run(Word* stack, uint64_t, uint64_t) {
    all[kPlace]->run(stack);
  }
  template <int kPlace = 0>
  static TorchFunctions::OperatorKernel kernel(int place) {
    if constexpr (kPlace < kMost) return place == kPlace ? run<kPlace> : kernel<kPlace + 1>(place);
    return nullptr;
  }
};

// ---- from Python

// functions as bytes
inline PyObject* python_dispatch_by(PyObject*, PyObject* const* args, ptrdiff_t count) {
  const Data functions = count == 1 ? bytes(args[0]) : Data{};
  if (functions.size != sizeof(TorchFunctions)) throw BadCall{"functions, as bytes"};
  std::memcpy(&torch_functions(), functions.data, functions.size);
  return none();
}

// its namespace, its name, a dispatch key, types of arguments, what to call with them, what says how to make the call without
// Python -> its place
inline PyObject* python_operator(PyObject*, PyObject* const* args, ptrdiff_t count) {
  enum { kSpace, kName, kKey, kTypes, kTexts, kCall = kTexts, kDirect, kCount };
  const char* texts[kTexts] = {};
  ptrdiff_t sizes[kTexts] = {};
  for (int i = 0; i < kTexts && count == kCount; ++i) {
    texts[i] = PyUnicode_AsUTF8AndSize(args[i], &sizes[i]);
    if (texts[i] == nullptr) throw PythonError();
  }
  const bool fits = sizes[kTypes] > 0 && sizes[kTypes] <= 2 * Operator::kMostArguments && sizes[kTypes] % 2 == 0;
  if (!fits || Operators::count == Operators::kMost || tensor_reader().type == nullptr) {
    throw BadCall{"a name, a key, a few types and two functions, of not too many operators"};
  }
  auto* const made = new Operator;
  for (int i = 0; i < kTexts; ++i) owned(args[i]);
  made->space = texts[kSpace];
  made->name = texts[kName];
  made->key = texts[kKey];
  made->arguments = sizes[kTypes] / 2;
  std::memcpy(made->types, texts[kTypes], sizes[kTypes]);
  made->call = owned(args[kCall]);
  made->direct = owned(args[kDirect]);
  Operators::all[Operators::count] = made;
  return PyLong_FromLongLong(Operators::count++);
}

inline Operator& operator_at(PyObject* const* args, ptrdiff_t count) {
  const int64_t place = count == 1 ? integer(args[0]) : -1;
  if (place < 0 || place >= Operators::count) throw BadCall{"the place of an operator"};
  return *Operators::all[place];
}

inline PyObject* python_put(PyObject*, PyObject* const* args, ptrdiff_t count) {
  Operator& one = operator_at(args, count);
  const TorchFunctions& torch = torch_functions();
  void* library;
  if (torch.new_library(one.space, one.key, "compile/overrides.py", 0, &library) == 0) {
    if (torch.put_kernel(library, one.name, Operators::kernel(integer(args[0]))) == 0) {
      one.library = library;
      return none();
    }
    torch.delete_library(library);
  }
  throw BadCall{"torch does not take a kernel"};
}

inline PyObject* python_take_away(PyObject*, PyObject* const* args, ptrdiff_t count) {
  Operator& one = operator_at(args, count);
  if (one.library != nullptr) torch_functions().delete_library(one.library);
  one.library = nullptr;
  return none();
}

inline PyObject* python_direct(PyObject*, PyObject* const* args, ptrdiff_t count) {
  const int whether = count == 1 ? PyObject_IsTrue(args[0]) : 0;
  if (whether < 0) throw PythonError();
  __atomic_store_n(&dispatched().direct, whether != 0, __ATOMIC_RELAXED);
  return none();
}

}  // namespace polyphase
