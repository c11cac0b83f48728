// Calls of axis maps on CUDA, from a request to a launch: which kernel does one, and what does it instead until that is there.
#pragma once

#include <cstring>

#include "polyphase/launch/device_launches.h"
#include "polyphase/launch/device_placed.h"
#include "polyphase/launch/guarded.h"

namespace polyphase {

// A kernel on its way into memory: `loading.State`. ready: 1 as soon as the function is there, or will not be.
struct KernelState {
  int64_t ready, function, waits;
};

// Of `loading.Kernel` as Python tells it: a tuple of it and the address of its state.
inline const KernelState& state_of(PyObject* kernel) {
  return *reinterpret_cast<const KernelState*>(integer(PyTuple_GetItem(kernel, 1)));
}

// Launches of one size until it waits for its own kernel. A size that is new has tables that are made on the device, where that
// can be; one that comes again has some of the host's, which are narrower, and whose kernel is made for just them.
constexpr int64_t kLaunchesWithoutOwn = 6;

class DeviceCalls;

// What has another launch for a call than its first, by `way`: once its own kernel is there. kernel: that, where Python was asked.
struct Better {
  PyObject* calls;  // the capsule of DeviceCalls
  Buffer<uint8_t> request;
  device::Way way;
  bool aligned;
  PyObject* kernel = nullptr;

  Better(PyObject* calls, const Buffer<uint8_t>& of, const device::Way& way, bool aligned)
      : calls(owned(calls)), way(way), aligned(aligned) {
    request.assign(of.data(), of.size());
  }
  Better(const Better&) = delete;
  ~Better() {
    Py_DecRef(calls);
    if (kernel != nullptr) Py_DecRef(kernel);
  }
  // Where it says that it is ready.
  const int64_t* hold(PyObject* one) {
    PyObject* const before = kernel;
    kernel = owned(one);
    if (before != nullptr) Py_DecRef(before);
    return &state_of(one).ready;
  }
};

// A call that was bound. better: null, or what has another launch for it; left: launches until it is asked again, which it is
// sooner where *ready is not 0 or a graph is captured. kept: what Python made that the launches read. All but `later` and `better` are looked at
// only where the GIL is held.
struct Bound {
  Launch first;
  Launch* later = nullptr;  // once it is there, it is the one
  Better* better = nullptr;
  bool was_asked = false;
  const int64_t* ready = nullptr;
  int64_t left = 1;
  Buffer<PyObject*> kept;

  Bound() = default;
  Bound(const Bound&) = delete;
  const Launch& launch() const {
    const Launch* const found = __atomic_load_n(&later, __ATOMIC_ACQUIRE);
    return found == nullptr ? first : *found;
  }
  bool may_become_better() const { return __atomic_load_n(&better, __ATOMIC_RELAXED) != nullptr; }
  ~Bound() {
    delete later;
    delete better;
    for (PyObject* one : kept) Py_DecRef(one);
  }
};

inline PyObject* called_with(PyObject* function, PyObject* argument) {
  PyObject* const answer = PyObject_VectorcallDict(function, &argument, 1, nullptr);
  if (answer == nullptr) throw PythonError();
  return answer;
}

inline PyObject* called_with(PyObject* function, PyObject* first, PyObject* second) {
  PyObject* const args[] = {first, second};
  PyObject* const answer = PyObject_VectorcallDict(function, args, 2, nullptr);
  if (answer == nullptr) throw PythonError();
  return answer;
}

// Of one program on a device, which is asked through Python (`cuda/programs.py`) for kernels and memory.
class DeviceCalls {
 public:
  // What is asked: choose(own, servers), ask(own, waits), stream_of(device), tap_maker(device), which is a function of the
  // driver's, and refused(device), which raises.
  enum { kChoose, kAsk, kStreamOf, kTapMaker, kRefused, kFunctions };

  DeviceCalls(const device::Program& program, int64_t context, int64_t device, PyObject* const* functions)
      : program_(program), context_(context), device_(device) {
    for (int i = 0; i < kFunctions; ++i) functions_[i] = owned(functions[i]);
  }
  DeviceCalls(const DeviceCalls&) = delete;
  ~DeviceCalls() {
    forget();
    for (PyObject* one : functions_) Py_DecRef(one);
  }

  // self: the capsule of this. Tables are made on the device where they can be, unless it is not known then how the call's own
  // kernel sums.
  void bind(const uint8_t* request, int64_t size, bool aligned, PyObject* self, Bound& bound) {
    const device::Arranged call(request, size, program_, {aligned, aligned, device::Makes::kForOne});
    const device::WaysOf ways(call);
    const device::Way own = ways.ways.own();
    if (!call.makes_tables() || ways.order_is_known(own)) return bind_by(call, own, aligned, self, bound);
    const device::Arranged by_host(request, size, program_, {aligned, aligned, device::Makes::kNone});
    bind_by(by_host, device::WaysOf(by_host).ways.own(), aligned, self, bound);
  }

  // After its own kernel was asked for: 0 where there is none, launches until it is to be asked again, or -1 where the bound call
  // has a better one.
  int64_t improve(Better& better, bool waits, Bound& bound) {
    const device::Arranged call(better.request.data(), better.request.size(), program_, {better.aligned, better.aligned, device::Makes::kNone});
    const device::Way own = call.of_call(device::WaysOf(call).ways.own());
    if (own == better.way) return 0;
    const Reference way(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(&own), sizeof(own)));
    const Reference number(PyBool_FromLong(waits));
    const Reference answer(called_with(functions_[kAsk], way.get(), number.get()));
    if (answer.get() == &_Py_NoneStruct) return 0;  // what serves goes on serving
    const KernelState& state = state_of(answer.get());
    bound.ready = better.hold(answer.get());
    learn(own, answer.get());
    if (state.function == 0) return kLaunchesWithoutOwn;
    const device::Prepared prepared(call, own, own);
    auto* const later = new Launch;
    try {
      fill(call, prepared, own, state, *later);
    } catch (...) {
      delete later;
      throw;
    }
    __atomic_store_n(&bound.later, later, __ATOMIC_RELEASE);
    return -1;
  }

  static int64_t tables_made() { return made_; }

 private:
  // own: for the tables that the call has, of which the host's are narrower than those that are made.
  void bind_by(const device::Arranged& call, const device::Way& own, bool aligned, PyObject* self, Bound& bound) {
    device::Way way;
    const KernelState& state = kernel_for(call, own, way);
    fill(call, device::Prepared(call, way, own), way, state, bound.first);
    if (way == own && !call.makes_tables()) return;
    const Known* const known = call.makes_tables() ? nullptr : find(call.of_call(own));
    bound.better = new Better(self, call.bytes(), way, aligned);
    bound.ready = known == nullptr ? &never_ : bound.better->hold(known->kernel);
  }

  // A kernel that Python was asked for, and the Python object that has its state.
  struct Known {
    device::Way way;
    PyObject* kernel;
    const KernelState* state;
  };

  void forget() {
    const Buffer<Known> before(move(known_));
    for (const Known& one : before) Py_DecRef(one.kernel);
  }
  const Known* find(const device::Way& way) const {
    for (const Known& one : known_) {
      if (one.way == way) return &one;
    }
    return nullptr;
  }
  bool is_loaded(const device::Way& way) const {
    const Known* const one = find(way);
    return one != nullptr && one->state->function != 0;
  }

  // One that failed is another by now.
  void learn(const device::Way& way, PyObject* kernel) {
    for (Known& one : known_) {
      if (!(one.way == way)) continue;
      PyObject* const before = one.kernel;
      one = {way, owned(kernel), &state_of(kernel)};
      return Py_DecRef(before);
    }
    if (known_.size() < kMostKnown) known_.push_back({way, owned(kernel), &state_of(kernel)});
  }

  // Its own kernel where that is there, else a server's. Python is asked where none is, or where one was never asked for.
  const KernelState& kernel_for(const device::Arranged& call, const device::Way& own, device::Way& way) {
    way = call.of_call(own);
    if (is_loaded(way)) return *find(way)->state;
    const device::Servers servers(call.one(), call.reads_tensors(), own);
    bool all_known = servers.count() > 0;
    int first = -1;
    for (int i = servers.count() - 1; i >= 0; --i) {
      const device::Way server = call.of_call(servers[i]);
      all_known = all_known && find(server) != nullptr;
      if (is_loaded(server)) first = i;
    }
    if (!all_known || first < 0) first = ask_python(call, own, servers);
    if (first >= 0) way = call.of_call(servers[first]);
    if (!is_loaded(way)) throw BadCall{"a kernel that is not there"};
    return *find(way)->state;
  }
  // The server's number, -1 for its own.
  int ask_python(const device::Arranged& call, const device::Way& own, const device::Servers& servers) {
    const auto as_bytes = [](const device::Way& way) {
      return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(&way), sizeof(way));
    };
    if (known_.size() + 1 + servers.count() > kMostKnown) forget();
    const Reference of_own(as_bytes(call.of_call(own))), others(PyTuple_New(servers.count()));
    for (int i = 0; i < servers.count(); ++i) PyTuple_SetItem(others.get(), i, as_bytes(call.of_call(servers[i])));
    const Reference answer(called_with(functions_[kChoose], of_own.get(), others.get()));
    PyObject* const kernels = PyTuple_GetItem(answer.get(), 1);
    if (kernels == nullptr) throw PythonError();
    learn(call.of_call(own), PyTuple_GetItem(kernels, 0));
    for (int i = 0; i < servers.count(); ++i) learn(call.of_call(servers[i]), PyTuple_GetItem(kernels, i + 1));
    return static_cast<int>(integer(PyTuple_GetItem(answer.get(), 0)));
  }

  void fill(const device::Arranged& call, const device::Prepared& prepared, const device::Way& way, const KernelState& state,
            Launch& launch) {
    const Request& request = call.request();
    const device::Cut& cut = prepared.cut();
    launch.plan = {state.function, context_,
                   {cut.blocks[0], cut.blocks[1], cut.blocks[2]},
                   way.threads, cut.shared_bytes, state.waits,
                   request.vector_count, request.tensor_count, prepared.vectors_at(), prepared.tensors_at(), 0};
    launch.size = prepared.call().size() * static_cast<int64_t>(sizeof(int64_t));
    if (launch.size > kMostBytes) throw TooManyDimensions();
    std::memcpy(launch.call, prepared.call().data(), launch.size);
    if (prepared.parts().size() + prepared.makings().size() > 0) fill_tables(prepared, launch);
    made_ += prepared.table_count() + prepared.makings().size();
  }

  // Parts one behind the other, by one copy, and then what is made there.
  void fill_tables(const device::Prepared& prepared, Launch& launch) {
    const device::TablesOnDevice tables(prepared);
    const Reference device(PyLong_FromLongLong(device_)), number(called_with(functions_[kStreamOf], device.get()));
    const int64_t stream = integer(number.get());
    if (tables.makes() && tap_maker_ == 0) {
      const Reference function(called_with(functions_[kTapMaker], device.get()));
      tap_maker_ = integer(function.get());
    }
    const auto fill = [&](int64_t address, void* stream) {
      const Buffer<uint8_t>& data = tables.data();
      if (data.size() > 0 && memory_functions.copy(address, data.data(), data.size(), stream) != 0) return false;
      TapsCall made = tables.place(address, launch.call);
      return made.count == 0 || polyphase::launch(plan_for(made), &made, sizeof(made), stream) >= 0;
    };
    TableMemory& memory = TableMemory::of(reinterpret_cast<void*>(context_));
    launch.tables = memory.filled(tables.size(), reinterpret_cast<void*>(stream), is_captured(stream), fill);
    if (launch.tables != nullptr) return;
    const Reference refused(called_with(functions_[kRefused], device.get()));
    throw BadCall{"the CUDA driver refused memory for tables"};
  }
  Plan plan_for(const TapsCall& made) const {
    return {tap_maker_, context_, {made.count, 1, 1}, kTapThreads, 8 * kTapThreads, 0, 0, 0, 0, 0, 1};
  }

  static constexpr int64_t kMostKnown = 256;
  static inline const int64_t never_ = 0;
  static inline int64_t made_ = 0;  // tables

  const device::Program program_;
  const int64_t context_, device_;
  PyObject* functions_[kFunctions];
  Buffer<Known> known_;
  int64_t tap_maker_ = 0;  // a function of the driver's, where it was needed
};

// Asks for another launch, if it is time to. Whoever launches meanwhile does so as before.
inline void become_better(Bound& bound, int64_t stream) {
  if (bound.better == nullptr) return;
  const bool captures = is_captured(stream);
  if (--bound.left >= 0 && __atomic_load_n(bound.ready, __ATOMIC_ACQUIRE) == 0 && !captures) return;
  Better* const better = bound.better;
  __atomic_store_n(&bound.better, nullptr, __ATOMIC_RELAXED);
  const bool waits = captures || bound.was_asked;
  bound.was_asked = true;
  try {
    bound.left = in_capsule<DeviceCalls>(better->calls).improve(*better, waits, bound);
  } catch (...) {
    delete better;
    throw;
  }
  if (bound.left <= 0) {
    delete better;
  } else {
    __atomic_store_n(&bound.better, better, __ATOMIC_RELAXED);
  }
}

// A request, as a capsule of what is bound. calls: a capsule of DeviceCalls.
inline PyObject* new_bound(PyObject* calls, const uint8_t* request, int64_t size, bool aligned) {
  auto* const bound = new Bound;
  Reference capsule(capsule_of(bound));
  in_capsule<DeviceCalls>(calls).bind(request, size, aligned, calls, *bound);
  return capsule.release();
}

}  // namespace polyphase
