// A call that may be the one before once more: its arguments the same but for sizes, and its tensors of the same kind. The plain twin is
// in `calls/again.py`.
#pragma once

#include <cstring>

#include "polyphase/launch/python_api.h"
#include "polyphase/launch/tensors.h"

namespace polyphase {

// Whether an argument asks for what another does, which consists of numbers, names, None, and tuples and lists of them. A
// torch.Size (`size_type`) is as good as a tuple. 1, 1.0 and True are equal, as are 0.0 and -0.0, but they are not the same.
inline bool are_same(PyObject* a, PyObject* b, const PyObject* size_type) {
  if (a == b) return true;
  const void* const own_type = type_of(a);
  const void* const type = own_type == size_type ? &PyTuple_Type : own_type;
  if (type != type_of(b)) return false;
  const bool tuple = type == &PyTuple_Type;
  if (tuple || type == &PyList_Type) {
    const auto size = tuple ? PyTuple_Size : PyList_Size;
    const auto item = tuple ? PyTuple_GetItem : PyList_GetItem;
    if (size(a) != size(b)) return false;
    for (ptrdiff_t i = 0; i < size(b); ++i) {
      if (!are_same(item(a, i), item(b, i), size_type)) return false;
    }
    return true;
  }
  if (type == &PyFloat_Type) {
    const double x = PyFloat_AsDouble(a), y = PyFloat_AsDouble(b);
    return std::memcmp(&x, &y, sizeof(x)) == 0;
  }
  return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
}

// `Parts` of calls/again.py.
enum { kCall, kTensors, kGiven, kGuard, kPlaceOfSizes, kTensorType, kDispatchModes, kHasFunctionMode, kForwardLevel, kSizeType, kAgainParts };

// 1 where tensors are like those that a call was for, 0 where not; -1 where an error is set. Nested tensors have no strides,
// which the guard asks for before anything else.
inline int are_alike(PyObject* parts, PyObject* const* tensors, ptrdiff_t count) {
  static PyObject* const is_nested = PyUnicode_InternFromString("is_nested");
  for (ptrdiff_t t = 0; t < count; ++t) {
    if (type_of(tensors[t]) != PyTuple_GetItem(parts, kTensorType)) return 0;
    const Reference nested(PyObject_GetAttr(tensors[t], is_nested));
    if (nested.get() == nullptr) return -1;
    if (PyObject_IsTrue(nested.get()) != 0) return 0;
  }
  const Reference guarded(PyObject_VectorcallDict(PyTuple_GetItem(parts, kGuard), tensors, count, nullptr));
  if (guarded.get() == nullptr) return -1;
  if (PyObject_IsTrue(guarded.get()) != 1) return 0;
  const Reference modes(PyObject_CallNoArgs(PyTuple_GetItem(parts, kDispatchModes)));
  if (modes.get() == nullptr) return -1;
  if (PyObject_IsTrue(modes.get()) != 0) return 0;
  const Reference mode(PyObject_VectorcallDict(PyTuple_GetItem(parts, kHasFunctionMode), tensors, 1, nullptr));
  if (mode.get() == nullptr) return -1;
  if (PyObject_IsTrue(mode.get()) != 0) return 0;
  const Reference level(PyObject_CallNoArgs(PyTuple_GetItem(parts, kForwardLevel)));
  if (level.get() == nullptr) return -1;
  return PyLong_AsLongLong(level.get()) < 0;
}

// Whether a call may be given these as sizes: a row of so many whole numbers, which are borrowed. What becomes one pixel may be
// another program.
inline bool read_sizes(PyObject* row, ptrdiff_t count, const void* size_type, PyObject** sizes) {
  const void* const type = type_of(row);
  const bool list = type == &PyList_Type;
  if (!list && type != &PyTuple_Type && type != size_type) return false;
  if ((list ? PyList_Size(row) : PyTuple_Size(row)) != count) return false;
  for (ptrdiff_t i = 0; i < count; ++i) {
    sizes[i] = list ? PyList_GetItem(row, i) : PyTuple_GetItem(row, i);
    if (type_of(sizes[i]) != &PyLong_Type) return false;
    const int64_t size = PyLong_AsLongLong(sizes[i]);
    if (size < 2 || size > INT32_MAX) return PyErr_Clear(), false;
  }
  return true;
}

// Tensors, then other arguments -> the result of the call; None where it is another.
inline PyObject* python_once_more(PyObject* parts, PyObject* const* args, ptrdiff_t count) {
  constexpr ptrdiff_t kMostGiven = 16;
  PyObject *const given = PyTuple_GetItem(parts, kGiven), *const size_type = PyTuple_GetItem(parts, kSizeType);
  const ptrdiff_t arguments = PyTuple_Size(given), tensors = PyLong_AsLongLong(PyTuple_GetItem(parts, kTensors));
  const ptrdiff_t place = PyLong_AsLongLong(PyTuple_GetItem(parts, kPlaceOfSizes));
  if (count != tensors + arguments) return none();
  PyObject* whole[kMostGiven];  // sizes and tensors
  ptrdiff_t sizes = 0;
  for (ptrdiff_t i = 0; i < arguments; ++i) {
    PyObject *const one = args[tensors + i], *const known = PyTuple_GetItem(given, i);
    if (i == place) {
      sizes = type_of(known) == &PyList_Type ? PyList_Size(known) : PyTuple_Size(known);
      if (sizes + tensors > kMostGiven || !read_sizes(one, sizes, size_type, whole)) return none();
    } else if (!are_same(one, known, size_type)) {
      return none();
    }
  }
  const int alike = are_alike(parts, args, tensors);
  if (alike != 1) return alike < 0 ? nullptr : none();
  if (sizes == 0) return PyObject_VectorcallDict(PyTuple_GetItem(parts, kCall), args, tensors, nullptr);
  std::memcpy(whole + sizes, args, tensors * sizeof(*args));
  return PyObject_VectorcallDict(PyTuple_GetItem(parts, kCall), whole, sizes + tensors, nullptr);
}

inline PyObject* python_again(PyObject*, PyObject* const* args, ptrdiff_t count) {
  static PyMethodDef once_more = {"again", python_once_more, METH_FASTCALL, "The call before once more, or None."};
  if (count != 1 || PyTuple_Size(args[0]) != kAgainParts) {
    if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_ValueError, "the parts of a call, as a tuple");
    return nullptr;
  }
  return PyCFunction_NewEx(&once_more, args[0], nullptr);
}

}  // namespace polyphase
