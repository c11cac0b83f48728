// Arguments and results of operators, as torch's stable C interface hands them over: words of 64 bits, which own what they
// point to; and as Python has them.
#pragma once

#include <cstring>
#include <exception>
#include <initializer_list>
#include <new>

#include "polyphase/launch/python_api.h"
#include "polyphase/launch/tensors.h"

// torch's own exception for an error that Python raised: by this name its bindings know it, and set the error again. Its
// fields are those of `torch/csrc/Exceptions.h`, but for a message that nobody reads where there is a type.
struct python_error : std::exception {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  char message[32] = {};

  // Of what is set.
  python_error() { PyErr_Fetch(&type, &value, &traceback); }
  python_error(const python_error&) = delete;
  ~python_error() override {
    const int state = PyGILState_Ensure();
    for (PyObject* one : {type, value, traceback}) {
      if (one != nullptr) Py_DecRef(one);
    }
    PyGILState_Release(state);
  }
  const char* what() const noexcept override { return "an error that Python raised"; }
};

namespace polyphase {

using Word = uint64_t;

// `_packed` of dispatched.py. All but a few return 0 where they could do it.
struct TorchFunctions {
  using OperatorKernel = void (*)(Word* stack, uint64_t inputs, uint64_t outputs);

  int (*dtype)(void* tensor, int32_t*);
  int (*device_type)(void* tensor, int32_t*);
  int (*device_index)(void* tensor, int32_t*);
  int (*empty_strided)(int64_t rank, const int64_t* sizes, const int64_t* strides, int32_t dtype, int32_t type, int32_t index,
                       void** tensor);
  int (*new_handle)(void* tensor, void** made);
  int (*delete_tensor)(void* tensor);
  int (*list_size)(void* list, size_t*);
  int (*list_item)(void* list, size_t, Word*);
  int (*delete_list)(void* list);
  int (*threads)(uint32_t*);
  int (*new_library)(const char* space, const char* key, const char* file, uint32_t line, void** library);
  int (*delete_library)(void* library);
  int (*put_kernel)(void* library, const char* name, OperatorKernel);
  PyObject* (*python_tensor)(const void* tensor);
  int (*delete_optional)(Word*);          // null where it is memory of C++'s own
  int (*stream)(int32_t device, void**);  // null where there are none
};

inline TorchFunctions& torch_functions() {
  static TorchFunctions functions;
  return functions;
}

inline void* pointer(Word word) { return reinterpret_cast<void*>(word); }

// The type of an argument: a form and what it is of, as `signature_of` of dispatched.py writes them.
struct ArgumentType {
  enum Form : char { kOne = '-', kList = '[', kOptional = '?' };
  enum Kind : char { kTensor = 't', kInteger = 'i', kBoolean = 'b', kFloat = 'f' };

  Form form;
  Kind kind;
};

// All that a call depends on, as numbers: of tensors dtype, device, sizes and strides, and every other argument.
class CallKey {
 public:
  bool add(const ArgumentType& type, Word word) {
    if (type.kind == ArgumentType::kTensor) return add_tensor(pointer(word));
    if (type.form == ArgumentType::kOne) return push(word);
    if (type.form == ArgumentType::kOptional) return push(word != 0) && (word == 0 || push(*static_cast<Word*>(pointer(word))));
    size_t size;
    if (torch_functions().list_size(pointer(word), &size) != 0 || !push(size)) return false;
    for (size_t i = 0; i < size; ++i) {
      Word item;
      if (torch_functions().list_item(pointer(word), i, &item) != 0 || !push(item)) return false;
    }
    return true;
  }

  bool operator==(const CallKey& other) const {
    return length_ == other.length_ && std::memcmp(words_, other.words_, length_ * sizeof(Word)) == 0;
  }
  uint64_t hash() const {
    uint64_t hash = 0xcbf29ce484222325;
    for (int64_t i = 0; i < length_; ++i) hash = (hash ^ words_[i]) * 0x100000001b3;
    return hash;
  }

 private:
  static constexpr int64_t kMost = 96;

  bool push(Word word) {
    if (length_ == kMost) return false;
    words_[length_++] = word;
    return true;
  }
  bool add_tensor(void* tensor) {
    const TensorFunctions& read = tensor_reader().functions;
    int64_t rank, *sizes, *strides;
    int32_t dtype, device;
    if (read.dim(tensor, &rank) != 0 || read.sizes(tensor, &sizes) != 0 || read.strides(tensor, &strides) != 0 ||
        torch_functions().dtype(tensor, &dtype) != 0 || torch_functions().device_index(tensor, &device) != 0) {
      return false;
    }
    if (length_ + 3 + 2 * rank > kMost) return false;
    for (const int64_t one : {rank, int64_t{dtype}, int64_t{device}}) words_[length_++] = one;
    for (int64_t d = 0; d < rank; ++d) words_[length_++] = sizes[d];
    for (int64_t d = 0; d < rank; ++d) words_[length_++] = strides[d];
    return true;
  }

  int64_t length_ = 0;
  Word words_[kMost];
};

// Gives back what an argument owns.
inline void drop(const ArgumentType& type, Word word) {
  const TorchFunctions& torch = torch_functions();
  if (type.kind == ArgumentType::kTensor) {
    torch.delete_tensor(pointer(word));
  } else if (type.form == ArgumentType::kList) {
    torch.delete_list(pointer(word));
  } else if (type.form == ArgumentType::kOptional && word != 0) {
    auto* const optional = static_cast<Word*>(pointer(word));
    torch.delete_optional == nullptr ? ::operator delete(optional) : static_cast<void>(torch.delete_optional(optional));
  }
}

inline PyObject* python_number(ArgumentType::Kind kind, Word word) {
  if (kind == ArgumentType::kInteger) return PyLong_FromLongLong(static_cast<int64_t>(word));
  if (kind == ArgumentType::kBoolean) return PyBool_FromLong(static_cast<uint8_t>(word));
  double number;
  std::memcpy(&number, &word, sizeof(number));
  return PyFloat_FromDouble(number);
}

// An argument as a new Python object, null with an error set where it cannot be.
inline PyObject* python_value(const ArgumentType& type, Word word) {
  if (type.kind == ArgumentType::kTensor) return torch_functions().python_tensor(pointer(word));
  if (type.form == ArgumentType::kOne) return python_number(type.kind, word);
  if (type.form == ArgumentType::kOptional) return word == 0 ? none() : python_number(type.kind, *static_cast<Word*>(pointer(word)));
  size_t size = 0;
  torch_functions().list_size(pointer(word), &size);
  Reference list(PyList_New(size));
  for (size_t i = 0; list.get() != nullptr && i < size; ++i) {
    Word item = 0;
    torch_functions().list_item(pointer(word), i, &item);
    PyObject* const number = python_number(type.kind, item);
    if (number == nullptr) return nullptr;
    PyList_SetItem(list.get(), i, number);
  }
  return list.release();
}

}  // namespace polyphase
