// Whole calls for tensors of any size, of one request: what was bound for sizes that were seen lately, and for new ones.
#pragma once

#include "polyphase/launch/any_size.h"
#include "polyphase/launch/guarded.h"
#include "polyphase/launch/sizes.h"

namespace polyphase {

// What is bound and the place of its output, as a tuple.
enum { kBoundCall, kPlaceOfOutput };

// bind(request, size, variant): what is bound, as a capsule; null where Python has to do it. variant: what it depends on besides
// sizes and strides.
template <class Bind>
class AnySizes {
 public:
  AnySizes(const Data& request, const AnySize& rules, const Bind& bind) : rules_(rules), bind_(bind) {
    request_.assign(request.data, request.size);
  }

  // Sizes that each call is given, before its tensors.
  int64_t given() const { return rules_.given; }

  // As a tuple that the caller owns; null where Python has to do it.
  PyObject* get(const int64_t* given, const Extent* tensors, int64_t count, int64_t variant, PyObject* dtype,
                PyObject* strides_like) {
    Key key(tensors, count);
    for (int64_t i = 0; i < rules_.given; ++i) key.add(given[i]);
    key.add(variant);
    const uint64_t hash = key.hash();
    PyObject* kept = sizes_.find(key, hash);
    if (kept != nullptr) return kept;
    kept = bound_to(given, tensors, count, variant, dtype, strides_like);
    if (kept != nullptr) sizes_.keep(key, hash, kept);
    return kept;
  }

 private:
  PyObject* bound_to(const int64_t* given, const Extent* tensors, int64_t count, int64_t variant, PyObject* dtype,
                     PyObject* strides_like) {
    Buffer<uint8_t> copy(request_.size());  // others may come here too, while Python is asked for something
    std::memcpy(copy.data(), request_.data(), request_.size());
    Request& request = *reinterpret_cast<Request*>(copy.data());
    auto* const steps = reinterpret_cast<Step*>(copy.data() + sizeof(request));
    for (int64_t i = 0; i < rules_.given; ++i) steps[i].a = given[i];
    Refit refit(rules_, steps, request);
    if (!refit.to(tensors[0], count > 1 ? &tensors[1] : nullptr)) return nullptr;
    const Reference shape(numbers(request.out_size, request.rank));
    if (refit.follows_image()) follow_image(request, shape.get(), strides_like);
    Reference bound(bind_(copy.data(), copy.size(), variant));
    if (bound.get() == nullptr) return nullptr;
    const Reference place(tuple_of({owned(shape.get()), numbers(request.out_stride, request.rank), owned(dtype)}));
    return tuple_of({bound.release(), owned(place.get())});
  }

  static void follow_image(Request& request, PyObject* shape, PyObject* strides_like) {
    const Reference strides(numbers(request.in_stride, request.rank));
    PyObject* const args[] = {shape, strides.get()};
    const Reference found(PyObject_VectorcallDict(strides_like, args, 2, nullptr));
    if (found.get() == nullptr) throw PythonError();
    for (int64_t d = 0; d < request.rank; ++d) request.out_stride[d] = integer(PyTuple_GetItem(found.get(), d));
  }

  Buffer<uint8_t> request_;
  const AnySize rules_;
  const Bind bind_;
  Sizes<PyObject> sizes_;
};

// `AnySizes::get` for the sizes that a call is given, and tensors: an image, and coordinates at most.
template <class Bind>
PyObject* bound_to_sizes(AnySizes<Bind>& sizes, PyObject* const* args, ptrdiff_t count, int64_t variant, PyObject* dtype,
                         PyObject* strides_like) {
  const ptrdiff_t first = sizes.given();
  if (count < first + 1 || count > first + 2) throw BadCall{"an image, and coordinates at most"};
  int64_t given[kMaxDimensions];
  for (ptrdiff_t i = 0; i < first; ++i) given[i] = integer(args[i]);
  Extent tensors[2];
  for (ptrdiff_t t = 0; t < count - first; ++t) {
    if (tensors[t].read(args[first + t])) continue;
    if (PyErr_Occurred() != nullptr) throw PythonError();
    throw TooManyDimensions();
  }
  try {
    return sizes.get(given, tensors, count - first, variant, dtype, strides_like);
  } catch (const TooManyDimensions&) {
    return nullptr;
  }
}

// A request, and rules for other sizes, as bytes.
inline AnySize rules_for(const Data& request, const Data& rules) {
  if (rules.size != sizeof(AnySize) || request.size < static_cast<ptrdiff_t>(sizeof(Request))) {
    throw BadCall{"a request or rules of another size than the launcher's"};
  }
  AnySize copy;
  std::memcpy(&copy, rules.data, sizeof(copy));
  Request known;
  read_request(request.data, request.size, known);
  bool each_has_one = copy.given == 0 || copy.given == known.map_count;
  for (int64_t m = 0; m < copy.given && each_has_one; ++m) each_has_one = known.last_step[m] == m + 1;
  if (!each_has_one) throw BadCall{"sizes for other maps than a request's"};
  return copy;
}

}  // namespace polyphase
