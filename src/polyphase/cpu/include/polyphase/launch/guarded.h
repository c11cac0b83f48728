// What Python calls, with C++ errors turned into Python's.
#pragma once

#include <new>

#include "polyphase/launch/dimensions.h"
#include "polyphase/launch/python_objects.h"

namespace polyphase {

// Runs `body`, C++ errors turned into Python's.
template <class Function>
PyObject* guarded(Function body) {
  try {
    return body();
  } catch (const PythonError&) {
  } catch (const std::bad_alloc&) {
    PyErr_SetString(PyExc_MemoryError, "not enough memory for a call");
  } catch (const TooManyDimensions&) {
    PyErr_SetString(PyExc_NotImplementedError, "too many dimensions for one kernel");
  } catch (const BadCall& bad) {
    PyErr_SetString(PyExc_ValueError, bad.message);
  }
  return nullptr;
}

// A function that throws, as Python calls it.
template <PyObject* (*kBody)(PyObject*, PyObject* const*, ptrdiff_t)>
PyObject* throwing(PyObject* self, PyObject* const* args, ptrdiff_t count) {
  return guarded([&] { return kBody(self, args, count); });
}

// Of functions, to be called by Python.
template <int kCount>
PyObject* as_tuple(PyMethodDef (&some)[kCount]) {
  PyObject* tuple = PyTuple_New(kCount);
  for (int i = 0; i < kCount; ++i) PyTuple_SetItem(tuple, i, PyCFunction_NewEx(&some[i], nullptr, nullptr));
  return tuple;
}

}  // namespace polyphase
