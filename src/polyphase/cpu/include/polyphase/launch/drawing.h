// Draws from a generator of torch's by a table, as Python asks for them.
#pragma once

#include "polyphase/draws/walk.h"
#include "polyphase/launch/python_objects.h"
#include "polyphase/launch/request.h"

namespace polyphase {

enum { kDrawTable, kDrawExp, kDrawRounding, kDrawParts };

constexpr int64_t kUsualNumbers = 64;

inline PyObject* as_floats(const Buffer<double>& numbers) {
  Reference tuple(PyTuple_New(numbers.size()));
  for (int64_t i = 0; tuple.get() != nullptr && i < numbers.size(); ++i) {
    PyTuple_SetItem(tuple.get(), i, PyFloat_FromDouble(numbers[i]));
  }
  if (tuple.get() == nullptr) throw PythonError();
  return tuple.release();
}

// A generator's state in memory of its own; of None, nothing is drawn. Nothing of Python's runs between reading it and
// writing it back, so that other threads of Python draw before or after.
class OwnState {
 public:
  explicit OwnState(PyObject* generator) : generator_(generator) {
    if (is_none()) return;
    static PyObject* const get_state = PyUnicode_InternFromString("get_state");
    tensor_ = Reference(PyObject_VectorcallMethod(get_state, &generator_, 1, nullptr));
    Extent extent;
    if (tensor_.get() == nullptr || !extent.read(tensor_.get())) throw PythonError();
    const int64_t address = address_of(tensor_.get());
    if (address == -1) throw PythonError();
    if (extent.rank == 1 && extent.size[0] == sizeof(GeneratorState)) state_ = reinterpret_cast<GeneratorState*>(address);
    if (state_ != nullptr) before_ = *state_;
  }

  // False where torch's state is another than we know.
  bool can_draw() const { return is_none() || (state_ != nullptr && state_->is_whole()); }
  GeneratorState* get() const { return state_; }

  void write_back() const {
    if (is_none()) return;
    static PyObject* const set_state = PyUnicode_InternFromString("set_state");
    PyObject* const args[] = {generator_, tensor_.get()};
    const Reference done(PyObject_VectorcallMethod(set_state, args, 2, nullptr));
    if (done.get() == nullptr) throw PythonError();
  }

  // The generator becomes as if nothing had been drawn.
  void take_back() const {
    if (is_none()) return;
    *state_ = before_;
    write_back();
  }

 private:
  bool is_none() const { return generator_ == &_Py_NoneStruct; }

  PyObject* const generator_;
  Reference tensor_{nullptr};
  GeneratorState* state_ = nullptr;
  GeneratorState before_;
};

// Objects, names, and what they had under these, one after the other: whether they still have that.
inline bool are_unchanged(PyObject* triples) {
  const ptrdiff_t count = PyTuple_Size(triples);
  for (ptrdiff_t i = 0; i + 2 < count; i += 3) {
    const Reference value(PyObject_GetAttr(PyTuple_GetItem(triples, i), PyTuple_GetItem(triples, i + 1)));
    const int same = value.get() == nullptr ? -1 : PyObject_RichCompareBool(value.get(), PyTuple_GetItem(triples, i + 2), Py_EQ);
    if (same < 0) PyErr_Clear();  // it has nothing, or what cannot be compared
    if (same != 1) return false;
  }
  return true;
}

inline Drawing drawing_by(PyObject* exp, PyObject* rounding) {
  return {reinterpret_cast<ManyExp>(integer(exp)), integer(rounding)};
}

// a generator, the height and width of an image -> a tuple of numbers; None where Python has to draw, and nothing was drawn.
inline PyObject* draw_numbers(PyObject* parts, PyObject* const* args, ptrdiff_t count) {
  if (count != 3) throw BadCall{"a generator, and the height and width of an image"};
  const Data table = bytes(PyTuple_GetItem(parts, kDrawTable));
  const Drawing drawing = drawing_by(PyTuple_GetItem(parts, kDrawExp), PyTuple_GetItem(parts, kDrawRounding));
  const int64_t height = integer(args[1]), width = integer(args[2]);
  Buffer<double> draws, numbers(kUsualNumbers);
  draws.assign(reinterpret_cast<const double*>(table.data), table.size / static_cast<ptrdiff_t>(sizeof(double)));
  OwnState state(args[0]);
  if (state.get() == nullptr || !state.can_draw()) return none();
  Generator generator(*state.get(), drawing.rounding);
  numbers.resize(0);
  DrawWalk walk(generator, drawing.exp, height, width, numbers);
  if (!walk.take_all(draws.begin(), draws.end())) return none();
  state.write_back();
  return as_floats(numbers);
}

}  // namespace polyphase
