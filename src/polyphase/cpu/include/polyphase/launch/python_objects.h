// Python's objects from C++, and the other way round. What Python raises is a PythonError meanwhile.
#pragma once

#include "polyphase/launch/python_api.h"
#include "polyphase/launch/tensors.h"

namespace polyphase {

struct PythonError {};  // already set

inline int64_t integer(PyObject* object) {
  const long long value = PyLong_AsLongLong(object);
  if (value == -1 && PyErr_Occurred() != nullptr) throw PythonError();
  return value;
}

struct Data {
  const uint8_t* data;
  ptrdiff_t size;
};

inline Data bytes(PyObject* object) {
  char* data;
  ptrdiff_t size;
  if (PyBytes_AsStringAndSize(object, &data, &size) < 0) throw PythonError();
  return {reinterpret_cast<const uint8_t*>(data), size};
}

inline PyObject* owned(PyObject* object) {
  Py_IncRef(object);
  return object;
}

// Of objects that become the tuple's.
template <int kCount>
PyObject* tuple_of(PyObject* const (&items)[kCount]) {
  PyObject* tuple = PyTuple_New(kCount);
  if (tuple == nullptr) throw PythonError();
  for (int i = 0; i < kCount; ++i) PyTuple_SetItem(tuple, i, items[i]);
  return tuple;
}

inline PyObject* numbers(const int64_t* values, int64_t count) {
  PyObject* tuple = PyTuple_New(count);
  if (tuple == nullptr) throw PythonError();
  for (int64_t i = 0; i < count; ++i) PyTuple_SetItem(tuple, i, PyLong_FromLongLong(values[i]));
  return tuple;
}

// What Python owns from now on, and deletes.
template <class T>
PyObject* capsule_of(T* made) {
  const auto release = [](PyObject* capsule) { delete static_cast<T*>(PyCapsule_GetPointer(capsule, nullptr)); };
  PyObject* const capsule = PyCapsule_New(made, nullptr, release);
  if (capsule != nullptr) return capsule;
  delete made;
  throw PythonError();
}
template <class T>
T& in_capsule(PyObject* capsule) {
  auto* const found = static_cast<T*>(PyCapsule_GetPointer(capsule, nullptr));
  if (found == nullptr) throw PythonError();
  return *found;
}

// A function whose `self` is a tuple of what it was made of.
template <int kCount>
PyObject* made_of(PyMethodDef* function, PyObject* const (&parts)[kCount]) {
  const Reference tuple(tuple_of(parts));
  return PyCFunction_NewEx(function, tuple.get(), nullptr);
}

}  // namespace polyphase
