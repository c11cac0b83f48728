// From Python to a kernel, in two steps: `bind` takes a request and gives what is bound, `launch` takes that and tensors,
// lets the GIL go and runs. `fresh` and `any_size` make functions of both, which make their output themselves.
#include "polyphase/launch/again.h"
#include "polyphase/launch/any_sizes.h"
#include "polyphase/launch/attention.h"
#include "polyphase/launch/dispatched.h"
#include "polyphase/launch/drawing.h"
#include "polyphase/launch/gradients.h"
#include "polyphase/launch/guarded.h"
#include "polyphase/launch/pictures.h"
#include "polyphase/launch/running.h"
#include "polyphase/launch/sized_calls.h"

namespace polyphase {
namespace {

bool run_directly(const void* what, int32_t, void* const* addresses, int64_t count) {
  try {
    Addresses given;
    given.count = count;
    std::memcpy(given.data, addresses, count * sizeof(void*));
    Ready call = ready(*static_cast<const Bound*>(what), given);
    uint32_t threads = 1;
    if (call.most_threads > 1 && torch_functions().threads(&threads) != 0) return false;
    call.run(threads);
  } catch (...) {  // Python says what it was
    return false;
  }
  __atomic_add_fetch(&launched, 1, __ATOMIC_RELAXED);
  return true;
}

PyObject* python_bind(PyObject*, PyObject* const* args, ptrdiff_t count) {
  if (count != 1) throw BadCall{"bind takes a request"};
  const Data request = bytes(args[0]);
  return new_bound(request.data, request.size);
}

// bound, tensors
PyObject* python_launch(PyObject*, PyObject* const* args, ptrdiff_t count) {
  if (count < 3) throw BadCall{"launch takes what is bound and two tensors at least"};
  Addresses addresses;
  for (ptrdiff_t i = 1; i < count; ++i) add_address(args[i], addresses);
  run(bound_in(args[0]), addresses);
  return none();
}

// ---- whole calls, from tensors to a new one

enum { kBound, kEmpty, kPlace, kFreshParts };

PyObject* python_call(PyObject* parts, PyObject* const* args, ptrdiff_t count) {
  const Bound& bound = bound_in(PyTuple_GetItem(parts, kBound));
  return run_into_new(bound, PyTuple_GetItem(parts, kEmpty), PyTuple_GetItem(parts, kPlace), args, count);
}

PyMethodDef fresh_call = {"call", throwing<python_call>, METH_FASTCALL, "Of tensors: a new one."};

// bound, what makes a tensor, its arguments
PyObject* python_fresh(PyObject*, PyObject* const* args, ptrdiff_t count) {
  if (count != kFreshParts) throw BadCall{"fresh takes what is bound, and how a tensor is made"};
  return made_of(&fresh_call, {owned(args[kBound]), owned(args[kEmpty]), owned(args[kPlace])});
}

// as `gradients.h` has its parts
PyObject* python_gradients(PyObject*, PyObject* const* args, ptrdiff_t count) {
  static PyMethodDef call = {"call", throwing<call_gradients>, METH_FASTCALL, "Gradients of the image and of the coordinates."};
  if (count != kGradientParts) throw BadCall{"gradients takes what is bound, what makes a tensor, and two places"};
  PyObject* parts[kGradientParts];
  for (int i = 0; i < kGradientParts; ++i) parts[i] = owned(args[i]);
  return made_of(&call, parts);
}

// ---- whole calls for any size

struct BindHere {
  PyObject* operator()(const uint8_t* request, int64_t size, int64_t) const { return new_bound(request, size); }
};
using Here = AnySizes<BindHere>;

enum { kSizes, kNew, kDtype, kStridesLike, kOtherwise, kAnySizeParts };

Here& sizes_in(PyObject* parts) { return in_capsule<Here>(PyTuple_GetItem(parts, kSizes)); }

PyObject* bound_here(PyObject* parts, PyObject* const* args, ptrdiff_t count) {
  return bound_to_sizes(sizes_in(parts), args, count, 0, PyTuple_GetItem(parts, kDtype), PyTuple_GetItem(parts, kStridesLike));
}

PyObject* python_call_any_size(PyObject* parts, PyObject* const* args, ptrdiff_t count) {
  const Reference kept(bound_here(parts, args, count));
  if (kept.get() == nullptr) return PyObject_VectorcallDict(PyTuple_GetItem(parts, kOtherwise), args, count, nullptr);
  const Bound& bound = bound_in(PyTuple_GetItem(kept.get(), kBoundCall));
  PyObject* const place = PyTuple_GetItem(kept.get(), kPlaceOfOutput);
  const int64_t given = sizes_in(parts).given();
  return run_into_new(bound, PyTuple_GetItem(parts, kNew), place, args + given, count - given);
}

// a request, its rules, what makes a tensor, its dtype, strides of an output in the order of others, what to call where
// sizes are not for this
PyObject* python_any_size(PyObject*, PyObject* const* args, ptrdiff_t count) {
  static PyMethodDef call = {"call", throwing<python_call_any_size>, METH_FASTCALL, "Of tensors of any size: a new one."};
  if (count != kAnySizeParts + 1) throw BadCall{"any_size takes a request, its rules, and how a tensor is made"};
  const Data request = bytes(args[0]);
  auto* const made = new Here(request, rules_for(request, bytes(args[1])), {});
  return made_of(&call, {capsule_of(made), owned(args[2]), owned(args[3]), owned(args[4]), owned(args[5])});
}

// what any_size made, tensors -> what is bound to their sizes, and the place of its output; None where Python binds it
PyObject* python_bound_of(PyObject*, PyObject* const* args, ptrdiff_t count) {
  if (count < 1 || PyCFunction_GetFunction(args[0]) != throwing<python_call_any_size>) {
    if (PyErr_Occurred() != nullptr) throw PythonError();
    throw BadCall{"bound_of takes what any_size made"};
  }
  PyObject* const found = bound_here(PyCFunction_GetSelf(args[0]), args + 1, count - 1);
  return found == nullptr ? none() : found;
}

// ---- images of any size, by templates

SizedCalls& sized_calls(PyObject* parts) { return in_capsule<SizedCalls>(PyTuple_GetItem(parts, 0)); }

// an image; or sizes, strides and what has its address
PyObject* python_call_sized(PyObject* parts, PyObject* const* args, ptrdiff_t count) {
  Extent image;
  if (count == 1) {
    if (image.read(args[0])) return sized_calls(parts).call(image, args[0], false);
    if (PyErr_Occurred() != nullptr) throw PythonError();
    return none();
  }
  if (count != 3) throw BadCall{"an image; or its sizes, strides and memory"};
  GivenImage given;
  given.read_numbers(args[0], args[1]);
  return sized_calls(parts).call(given.extent, args[2], true);
}

// images, what makes a tensor of the sizes and the dtype of a result
PyObject* python_many_sized(PyObject* parts, PyObject* const* args, ptrdiff_t count) {
  if (count != 2) throw BadCall{"images, and what makes a tensor for them"};
  return sized_calls(parts).many(args[0], args[1]);
}

// height and width
PyObject* python_follow(PyObject* parts, PyObject* const* args, ptrdiff_t count) {
  if (count != 2) throw BadCall{"a height and a width"};
  return sized_calls(parts).follow(integer(args[0]), integer(args[1]));
}

// a template
PyObject* python_learn(PyObject* parts, PyObject* const* args, ptrdiff_t count) {
  if (count != 1) throw BadCall{"a template"};
  return PyBool_FromLong(sized_calls(parts).learn(bytes(args[0])));
}

enum { kProgram, kTaughtRequest, kTaughtDrawn, kTaughtVectors, kTaughtDtype, kTaughtMake, kElementBytes, kTaughtBecomes, kTaughtParts };

// as above: a program's number, a request of it and the numbers that were drawn for that, vectors, the dtype of results, what
// makes one of a place, the bytes of an element, and what the picture is
PyObject* python_teach(PyObject* parts, PyObject* const* args, ptrdiff_t count) {
  if (count != kTaughtParts) throw BadCall{"teach takes a program, a request, and what is known of it"};
  const Data request = bytes(args[kTaughtRequest]);
  if (request.size < static_cast<ptrdiff_t>(sizeof(Request)) || PyTuple_Size(args[kTaughtVectors]) > kMaxOperands) {
    throw BadCall{"a request of another size than the launcher's"};
  }
  SizedPattern taught = {SizedRequest(request.data, request.size), Reference(owned(args[kTaughtVectors])),
                         Reference(owned(args[kTaughtDtype])), Reference(owned(args[kTaughtMake])), integer(args[kElementBytes]),
                         static_cast<Becomes>(integer(args[kTaughtBecomes]))};
  return PyBool_FromLong(sized_calls(parts).teach(integer(args[kProgram]), move(taught), bytes(args[kTaughtDrawn])));
}

// a generator or None, the address of exp or 0, whether multiply-adds are fused, what has to be unchanged,
// what pictures of Pillow's are or None
PyObject* python_sized(PyObject*, PyObject* const* args, ptrdiff_t count) {
  static PyMethodDef methods[] = {
      {"call", throwing<python_call_sized>, METH_FASTCALL, "Of an image, a new tensor, or None."},
      {"many", throwing<python_many_sized>, METH_FASTCALL, "Of images, a new tensor of all, or None."},
      {"follow", throwing<python_follow>, METH_FASTCALL, "What images of a size go through, or None."},
      {"learn", throwing<python_learn>, METH_FASTCALL, "Whether it is a template; then it is followed from now on."},
      {"teach", throwing<python_teach>, METH_FASTCALL, "Whether a request is a program's; then it is called from now on."}};
  if (count != 5) throw BadCall{"sized takes how numbers are drawn, and what images are"};
  auto* const calls = new SizedCalls(args[0], drawing_by(args[1], args[2]), args[3], args[4]);
  const Reference capsule(capsule_of(calls));
  const auto function = [&](PyMethodDef* one) { return made_of(one, {owned(capsule.get())}); };
  return tuple_of({function(&methods[0]), function(&methods[1]), function(&methods[2]), function(&methods[3]), function(&methods[4])});
}

PyObject* python_launch_all(PyObject*, PyObject* const* args, ptrdiff_t count) {
  launch_all(args, count);
  return none();
}

// ---- random numbers

// a table, the address of a function that computes exp or 0, how numbers of a range are rounded
PyObject* python_drawer(PyObject*, PyObject* const* args, ptrdiff_t count) {
  static PyMethodDef draw = {"draw", throwing<draw_numbers>, METH_FASTCALL, "Of a generator and a size, the numbers of an image."};
  if (count != kDrawParts || bytes(args[kDrawTable]).size % sizeof(double) != 0) {
    throw BadCall{"drawer takes a table, the address of exp, and how numbers of a range are rounded"};
  }
  return made_of(&draw, {owned(args[kDrawTable]), owned(args[kDrawExp]), owned(args[kDrawRounding])});
}

template <class T>
PyObject* as_bytes(const Buffer<T>& buffer) {
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(buffer.data()), buffer.size() * sizeof(T));
}

// A table's weights, whichever they are.
PyObject* as_doubles(const TapTable& table) {
  Buffer<double> weights;
  if (table.quantised.size() > 0) {
    weights.assign(table.quantised.data(), table.quantised.size());
  } else {
    weights.assign(table.exact.data(), table.exact.size());
  }
  return as_bytes(weights);
}

// sampler, in_size, transposed, recipe
PyObject* python_taps(PyObject*, PyObject* const* args, ptrdiff_t count) {
  if (count != 4) throw BadCall{"taps takes a sampler, a size, whether the adjoint is wanted, and a recipe"};
  const auto* sampler = reinterpret_cast<const Sampler*>(integer(args[0]));
  const Data recipe = bytes(args[3]);
  const int64_t steps = recipe.size / static_cast<int64_t>(sizeof(Step));
  TapTable table;
  make_taps({0, 0, 0, integer(args[1]), integer(args[2]), steps, reinterpret_cast<const Step*>(recipe.data)}, *sampler, &table);
  return tuple_of({PyLong_FromLongLong(table.in_size), as_bytes(table.begin), as_bytes(table.index),
                   as_doubles(table), as_bytes(table.border), PyLong_FromLongLong(table.precision),
                   PyLong_FromLongLong(table.index_only)});
}

PyObject* python_warp_picture(PyObject*, PyObject* const* args, ptrdiff_t count) {
  if (count != 3) throw BadCall{"warp_picture takes a warp as bytes, a source and a target"};
  const Data warp = bytes(args[0]);
  warp_picture(reinterpret_cast<const uint8_t*>(warp.data), warp.size, args[1], args[2]);
  return none();
}

// the address of what runs it, a call as bytes
PyObject* python_attend(PyObject*, PyObject* const* args, ptrdiff_t count) {
  if (count != 2) throw BadCall{"attend takes what runs, and a call"};
  const Data call = bytes(args[1]);
  attend(reinterpret_cast<RunAttention>(integer(args[0])), call.data, call.size);
  return none();
}

PyObject* python_counts(PyObject*, PyObject* const*, ptrdiff_t) {
  const TableCache& cache = TableCache::instance();
  const int64_t values[] = {__atomic_load_n(&launched, __ATOMIC_RELAXED), cache.made(), cache.cached()};
  return numbers(values, 3);
}

PyObject* python_forget(PyObject*, PyObject* const*, ptrdiff_t) {
  TableCache::instance().clear();
  return none();
}

PyMethodDef functions[] = {
    {"bind", throwing<python_bind>, METH_FASTCALL, "A kernel with all it needs but addresses."},
    {"launch", throwing<python_launch>, METH_FASTCALL, "Runs what was bound."},
    {"fresh", throwing<python_fresh>, METH_FASTCALL, "What was bound, as a function from tensors to a new one."},
    {"gradients", throwing<python_gradients>, METH_FASTCALL, "What was bound to a warp's gradients, as a function that makes them."},
    {"any_size", throwing<python_any_size>, METH_FASTCALL, "Likewise, of tensors of any size."},
    {"bound_of", throwing<python_bound_of>, METH_FASTCALL, "What such a call binds to the sizes of tensors, or None."},
    {"again", python_again, METH_FASTCALL, "A call, to be made once more where it is the one before."},
    {"read_by_handles", python_read_by_handles, METH_FASTCALL, "How tensors are asked from now on."},
    {"taps", throwing<python_taps>, METH_FASTCALL, "The table of an axis: (in_size, begin, index, weight, border, precision, index_only)"},
    {"counts", throwing<python_counts>, METH_FASTCALL, "(kernels launched, tables made, tables found in the cache)"},
    {"launch_all", throwing<python_launch_all>, METH_FASTCALL, "Runs what was bound, in any order, by as many threads as torch has."},
    {"sized", throwing<python_sized>, METH_FASTCALL, "Calls for images of any size by templates: (call, many, follow, learn, teach)"},
    {"drawer", throwing<python_drawer>, METH_FASTCALL, "What draws from a generator by a table, as torch does."},
    {"warp_picture", throwing<python_warp_picture>, METH_FASTCALL, "Warps a picture of Pillow's."},
    {"attend", throwing<python_attend>, METH_FASTCALL, "Runs attention at sampled places."},
    {"dispatch_by", throwing<python_dispatch_by>, METH_FASTCALL, "How kernels in the dispatcher know torch."},
    {"operator", throwing<python_operator>, METH_FASTCALL, "A kernel for the dispatcher, as a number."},
    {"put", throwing<python_put>, METH_FASTCALL, "Puts it into the dispatcher."},
    {"take_away", throwing<python_take_away>, METH_FASTCALL, "Takes it away."},
    {"direct", throwing<python_direct>, METH_FASTCALL, "Whether such kernels make calls without Python."},
    {"forget", python_forget, METH_FASTCALL, "Empties the cache of tables."},
};

}  // namespace
}  // namespace polyphase

// `threads`: torch.get_num_threads, which outlives this library. `huge_pages`: whether they are asked for.
extern "C" __attribute__((visibility("default"))) PyObject* polyphase_functions(PyObject* threads, PyObject* huge_pages) {
  polyphase::get_num_threads = threads;
  polyphase::uses_huge_pages = PyObject_IsTrue(huge_pages) == 1;
  polyphase::dispatched().run = polyphase::run_directly;
  return polyphase::as_tuple(polyphase::functions);
}
