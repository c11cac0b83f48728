// What is asked of a tensor: where it lies, its sizes and strides. By functions of torch's stable C interface, where it is
// known where a Python tensor has the handle that they take; else by the tensor's own methods.
#pragma once

#include <cstring>

#include "polyphase/launch/python_api.h"
#include "polyphase/launch/request.h"

namespace polyphase {

// A reference that is given back.
class Reference {
 public:
  explicit Reference(PyObject* object) : object_(object) {}
  ~Reference() {
    if (object_ != nullptr) Py_DecRef(object_);
  }
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;
  Reference(Reference&& other) : object_(other.release()) {}
  Reference& operator=(Reference&& other) {
    PyObject* const before = object_;
    object_ = other.release();
    if (before != nullptr) Py_DecRef(before);
    return *this;
  }

  PyObject* get() const { return object_; }
  PyObject* release() {
    PyObject* const object = object_;
    object_ = nullptr;
    return object;
  }

 private:
  PyObject* object_;
};

// The type of a Python object, to be compared: nobody owns it.
inline const void* type_of(PyObject* object) {
  const Reference type(PyObject_Type(object));
  return type.get();
}

// `packed` of handles.py.
struct TensorFunctions {
  int64_t place;  // of the handle in a Python tensor, in bytes
  int (*dim)(void* handle, int64_t*);
  int (*sizes)(void* handle, int64_t**);
  int (*strides)(void* handle, int64_t**);
  int (*data)(void* handle, void**);
};

// Of tensors of this type, and of no subclass.
struct TensorReader {
  PyObject* type = nullptr;
  TensorFunctions functions;

  // Null where a tensor is asked by its methods.
  void* handle(PyObject* tensor) const {
    return type != nullptr && type_of(tensor) == type ? reinterpret_cast<uint8_t*>(tensor) + functions.place : nullptr;
  }
};

inline TensorReader& tensor_reader() {
  static TensorReader reader;
  return reader;
}

// the type, the functions as bytes
inline PyObject* python_read_by_handles(PyObject*, PyObject* const* args, ptrdiff_t count) {
  char* functions;
  ptrdiff_t size;
  if (count != 2 || PyBytes_AsStringAndSize(args[1], &functions, &size) < 0 || size != sizeof(TensorFunctions)) {
    if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_ValueError, "a type of tensors, and functions as bytes");
    return nullptr;
  }
  std::memcpy(&tensor_reader().functions, functions, size);
  Py_IncRef(args[0]);
  tensor_reader().type = args[0];
  return none();
}

// data_ptr() of a tensor; -1 where an error is set.
inline int64_t address_of(PyObject* tensor) {
  static PyObject* const name = PyUnicode_InternFromString("data_ptr");
  const TensorReader& reader = tensor_reader();
  void *const handle = reader.handle(tensor), *data;
  if (handle != nullptr && reader.functions.data(handle, &data) == 0) return reinterpret_cast<int64_t>(data);
  const Reference number(PyObject_VectorcallMethod(name, &tensor, 1, nullptr));
  return number.get() == nullptr ? -1 : PyLong_AsLongLong(number.get());
}

// Sizes and strides of a tensor.
struct Extent {
  int64_t rank = 0;
  int64_t size[kMaxDimensions];
  int64_t stride[kMaxDimensions];

  // False where there are too many dimensions, or an error is set.
  bool read(PyObject* tensor) {
    const TensorReader& reader = tensor_reader();
    void* const handle = reader.handle(tensor);
    int64_t *sizes, *strides;
    if (handle == nullptr || reader.functions.dim(handle, &rank) != 0 || reader.functions.sizes(handle, &sizes) != 0 ||
        reader.functions.strides(handle, &strides) != 0) {
      return read_by_methods(tensor);
    }
    if (rank > kMaxDimensions) return false;
    std::memcpy(size, sizes, rank * sizeof(int64_t));
    std::memcpy(stride, strides, rank * sizeof(int64_t));
    return true;
  }

  // Of one of the tensors that this is many of.
  Extent within() const {
    Extent one;
    one.rank = rank - 1;
    std::memcpy(one.size, size + 1, one.rank * sizeof(int64_t));
    std::memcpy(one.stride, stride + 1, one.rank * sizeof(int64_t));
    return one;
  }

 private:
  bool read_by_methods(PyObject* tensor) {
    static PyObject* const names[] = {PyUnicode_InternFromString("size"), PyUnicode_InternFromString("stride")};
    int64_t* const to[] = {size, stride};
    for (int i = 0; i < 2; ++i) {
      const Reference numbers(PyObject_VectorcallMethod(names[i], &tensor, 1, nullptr));
      if (numbers.get() == nullptr) return false;
      rank = PyTuple_Size(numbers.get());
      if (rank > kMaxDimensions) return false;
      for (int64_t d = 0; d < rank; ++d) to[i][d] = PyLong_AsLongLong(PyTuple_GetItem(numbers.get(), d));
    }
    return PyErr_Occurred() == nullptr;
  }
};

}  // namespace polyphase
