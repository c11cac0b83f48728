// Draws from a generator of torch's by a table, as Python asks for them.
#pragma once

#include "polyphase/draws/walk.h"
#include "polyphase/launch/python_objects.h"
#include "polyphase/launch/request.h"

namespace polyphase {

enum { kDrawTable, kDrawExp, kDrawFused, kDrawParts };

constexpr int64_t kUsualNumbers = 64;

inline PyObject* as_floats(const Buffer<double>& numbers) {
  Reference tuple(PyTuple_New(numbers.size()));
  for (int64_t i = 0; tuple.get() != nullptr && i < numbers.size(); ++i) {
    PyTuple_SetItem(tuple.get(), i, PyFloat_FromDouble(numbers[i]));
  }
  if (tuple.get() == nullptr) throw PythonError();
  return tuple.release();
}

// A generator's state in memory of its own. Nothing of Python's runs between reading it and writing it back, so that other
// threads of Python draw before or after.
class OwnState {
 public:
  explicit OwnState(PyObject* generator) : generator_(generator), tensor_(call(name("get_state"), generator)) {
    Extent extent;
    if (!extent.read(tensor_.get())) throw PythonError();
    const int64_t address = address_of(tensor_.get());
    if (address == -1) throw PythonError();
    if (extent.rank == 1 && extent.size[0] == sizeof(GeneratorState)) state_ = reinterpret_cast<GeneratorState*>(address);
  }

  // Null where torch's state is another than we know.
  GeneratorState* get() const { return state_ != nullptr && state_->is_whole() ? state_ : nullptr; }

  void write_back() {
    static PyObject* const set_state = PyUnicode_InternFromString("set_state");
    PyObject* const args[] = {generator_, tensor_.get()};
    const Reference done(PyObject_VectorcallMethod(set_state, args, 2, nullptr));
    if (done.get() == nullptr) throw PythonError();
  }

 private:
  static PyObject* name(const char* text) {
    static PyObject* const kept = PyUnicode_InternFromString(text);
    return kept;
  }
  static PyObject* call(PyObject* name, PyObject* object) {
    PyObject* const made = PyObject_VectorcallMethod(name, &object, 1, nullptr);
    if (made == nullptr) throw PythonError();
    return made;
  }

  PyObject* const generator_;
  const Reference tensor_;
  GeneratorState* state_ = nullptr;
};

// a generator, the height and width of each image -> a tuple of the numbers of each, in order, up to one that Python has to
// draw for: what is left to it has not been drawn; and the state before.
inline PyObject* draw_numbers(PyObject* parts, PyObject* const* args, ptrdiff_t count) {
  if (count < 3 || count % 2 != 1) throw BadCall{"a generator, and the height and width of images"};
  const Data table = bytes(PyTuple_GetItem(parts, kDrawTable));
  const auto exp = reinterpret_cast<ManyExp>(integer(PyTuple_GetItem(parts, kDrawExp)));
  const bool fused = integer(PyTuple_GetItem(parts, kDrawFused)) != 0;
  Buffer<double> draws, numbers(kUsualNumbers);
  draws.assign(reinterpret_cast<const double*>(table.data), table.size / static_cast<ptrdiff_t>(sizeof(double)));
  const Reference made(PyList_New(0));
  if (made.get() == nullptr) throw PythonError();
  OwnState state(args[0]);
  GeneratorState* const found = state.get();
  const Reference state_before(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(found), found == nullptr ? 0 : sizeof(*found)));
  if (state_before.get() == nullptr) throw PythonError();
  for (ptrdiff_t i = 1; found != nullptr && i < count; i += 2) {
    const int64_t height = integer(args[i]), width = integer(args[i + 1]);
    const GeneratorState before = *found;
    Generator generator(*found, fused);
    numbers.resize(0);
    DrawWalk walk(generator, exp, height, width, numbers);
    if (!walk.take_all(draws)) {
      *found = before;
      break;
    }
    const Reference tuple(as_floats(numbers));
    if (PyList_Append(made.get(), tuple.get()) != 0) throw PythonError();
  }
  if (PyList_Size(made.get()) > 0) state.write_back();
  return tuple_of({owned(made.get()), owned(state_before.get())});
}

}  // namespace polyphase
