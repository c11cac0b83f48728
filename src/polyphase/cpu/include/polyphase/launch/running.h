// What was bound, with the addresses of tensors: run here, or by a queue of threads.
#pragma once

#include "polyphase/launch/bind.h"
#include "polyphase/launch/huge_pages.h"
#include "polyphase/launch/python_objects.h"

namespace polyphase {

inline int64_t launched = 0;  // atomic
inline PyObject* get_num_threads = nullptr;  // torch's function of this name

inline int64_t torch_threads() {
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
  int64_t most_threads, written_bytes;
  Bound::AnyCall call;

  void run(int64_t threads) {
    ask_for_huge_pages(call.any.target, written_bytes);
    call.any.threads = max<int64_t>(1, min(threads, most_threads));
    kernel->run(call.any);
  }
};

// Target, source, then coordinates (warps), the gradients of image and coordinates (warps' gradients), vectors and tensors.
inline Ready ready(const Bound& bound, const Addresses& given) {
  Ready result = {bound.kernel, bound.most_threads, bound.written_bytes, bound.call};
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

inline void run(const Bound& bound, const Addresses& given) {
  Ready call = ready(bound, given);
  // Asked only where more than one would be woken.
  const int64_t threads = call.most_threads <= 1 ? 1 : torch_threads();
  without_gil(1, [&] { call.run(threads); });
}

// None stands for a gradient that is not needed.
inline void add_address(PyObject* tensor, Addresses& to) {
  if (to.count == Addresses::kMost) throw BadCall{"more tensors than a kernel takes"};
  const int64_t address = tensor == &_Py_NoneStruct ? 0 : address_of(tensor);
  if (address == -1) throw PythonError();
  to.data[to.count++] = reinterpret_cast<void*>(address);
}

inline const Bound& bound_in(PyObject* capsule) { return in_capsule<Bound>(capsule); }

// Tasks that do not depend on each other: every thread takes the next when it is done with one.
template <class Task>
struct Queue {
  int64_t count;
  Task& task;
  int64_t next = 0;  // atomic

  static void work(void* context, int64_t, int64_t) {
    Queue& self = *static_cast<Queue*>(context);
    for (;;) {
      const int64_t i = __atomic_fetch_add(&self.next, 1, __ATOMIC_RELAXED);
      if (i >= self.count) return;
      self.task(i);
    }
  }
};

template <class Task>
void by_queue(int64_t count, int64_t threads, Task task) {
  Queue<Task> queue = {count, task};
  Threads::run(threads, threads, Queue<Task>::work, &queue);
}

inline void launch_all(PyObject* const* tuples, ptrdiff_t count) {
  Buffer<Ready> calls(count);
  for (ptrdiff_t i = 0; i < count; ++i) {
    const ptrdiff_t size = PyTuple_Size(tuples[i]);
    if (size < 0) throw PythonError();
    if (size < 3) throw BadCall{"launch_all takes tuples of what launch takes"};
    Addresses addresses;
    for (ptrdiff_t a = 1; a < size; ++a) add_address(PyTuple_GetItem(tuples[i], a), addresses);
    calls[i] = ready(bound_in(PyTuple_GetItem(tuples[i], 0)), addresses);
  }
  const int64_t threads = torch_threads();
  without_gil(count, [&] {
    if (count >= threads) return by_queue(count, threads, [&](int64_t i) { calls[i].run(1); });
    for (int64_t i = 0; i < count; ++i) calls[i].run(threads);
  });
}

// A new tensor, which `empty` makes of the `place`, and a launch into it.
inline PyObject* run_into_new(const Bound& bound, PyObject* empty, PyObject* place, PyObject* const* tensors, ptrdiff_t count) {
  Reference out(PyObject_CallObject(empty, place));
  if (out.get() == nullptr) throw PythonError();
  Addresses addresses;
  add_address(out.get(), addresses);
  for (ptrdiff_t t = 0; t < count; ++t) add_address(tensors[t], addresses);
  run(bound, addresses);
  return out.release();
}

// Binds a request, and gives it away as a capsule.
inline PyObject* new_bound(const uint8_t* request, int64_t size) {
  auto* const bound = new Bound;
  Reference capsule(capsule_of(bound));
  bind(request, size, *bound);
  return capsule.release();
}

}  // namespace polyphase
