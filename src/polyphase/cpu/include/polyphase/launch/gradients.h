// Gradients of a warp as one call: their memory made, zeroed where a kernel adds to it, and launched into.
#pragma once

#include <cstring>

#include "polyphase/launch/running.h"

namespace polyphase {

// As threads share them.
constexpr int64_t kZeroedTogether = int64_t{1} << 20;

inline void zero(void* memory, int64_t bytes, int64_t threads) {
  ask_for_huge_pages(memory, bytes);
  auto* const first = static_cast<uint8_t*>(memory);
  by_queue((bytes + kZeroedTogether - 1) / kZeroedTogether, threads, [&](int64_t i) {
    std::memset(first + i * kZeroedTogether, 0, min(kZeroedTogether, bytes - i * kZeroedTogether));
  });
}

// What is bound, or None where there is nothing to launch; what makes a tensor; of the image's gradient its arguments for
// that, None where it is not needed, and how many bytes of it are zeroed; and of the coordinates' gradient.
enum { kWarped, kNewGradient, kOfImage, kImageZeros, kOfCoordinates, kCoordinateZeros, kGradientParts };

// The gradient that came in, image, coordinates, operands -> (gradient of the image, of the coordinates), None for one that
// is not needed.
inline PyObject* call_gradients(PyObject* parts, PyObject* const* tensors, ptrdiff_t count) {
  if (count < 3) throw BadCall{"gradients are of a gradient, an image and coordinates"};
  Addresses addresses;
  for (ptrdiff_t t = 0; t < 3; ++t) add_address(tensors[t], addresses);
  PyObject* made[2] = {};
  const auto part = [&](int i) { return PyTuple_GetItem(parts, i); };
  for (int g = 0; g < 2; ++g) {
    PyObject* const place = part(kOfImage + 2 * g);
    made[g] = place == &_Py_NoneStruct ? none() : PyObject_CallObject(part(kNewGradient), place);
    if (made[g] == nullptr) throw PythonError();
  }
  const Reference both(tuple_of(made));
  int64_t zeros[2], most = 0;
  for (int g = 0; g < 2; ++g) {
    add_address(made[g], addresses);
    zeros[g] = integer(part(kImageZeros + 2 * g));
    most = max(most, zeros[g]);
  }
  const int64_t threads = most > kZeroedTogether ? torch_threads() : 1;
  without_gil(0, [&] {
    for (int g = 0; g < 2; ++g) zero(addresses.data[3 + g], zeros[g], threads);
  });
  for (ptrdiff_t t = 3; t < count; ++t) add_address(tensors[t], addresses);
  if (part(kWarped) != &_Py_NoneStruct) run(bound_in(part(kWarped)), addresses);
  return owned(both.get());
}

}  // namespace polyphase
