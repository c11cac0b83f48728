// The few functions of Python's interface the launcher needs, declared here: a machine that has Python and a compiler
// need not have Python's headers. All are in the libraries of every version from 3.10 on, which has PyObject_Vectorcall
// in its headers alone.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {
struct PyObject {};
struct PyThreadState;
using PyCFunctionFast = PyObject* (*)(PyObject*, PyObject* const*, ptrdiff_t);
struct PyMethodDef {
  const char* ml_name;
  PyCFunctionFast ml_meth;
  int ml_flags;
  const char* ml_doc;
};
constexpr int METH_FASTCALL = 0x0080;
constexpr int Py_EQ = 2;

struct PyTypeObject {};
extern PyTypeObject PyFloat_Type, PyList_Type, PyLong_Type, PyTuple_Type;
extern PyObject _Py_NoneStruct;
extern PyObject* PyExc_MemoryError;
extern PyObject* PyExc_NotImplementedError;
extern PyObject* PyExc_ValueError;

PyObject* PyCapsule_New(void*, const char*, void (*)(PyObject*));
void* PyCapsule_GetPointer(PyObject*, const char*);
PyObject* PyObject_Type(PyObject*);
PyObject* PyObject_GetAttr(PyObject*, PyObject*);
int PyObject_IsInstance(PyObject*, PyObject*);
int PyObject_IsTrue(PyObject*);
int PyObject_RichCompareBool(PyObject*, PyObject*, int);
PyObject* PyObject_CallNoArgs(PyObject*);
PyObject* PyObject_CallObject(PyObject*, PyObject*);
PyObject* PyObject_VectorcallDict(PyObject*, PyObject* const*, size_t, PyObject*);
PyObject* PyObject_VectorcallMethod(PyObject*, PyObject* const*, size_t, PyObject*);
void Py_IncRef(PyObject*);
void Py_DecRef(PyObject*);
PyObject* PyCFunction_NewEx(PyMethodDef*, PyObject*, PyObject*);
PyCFunctionFast PyCFunction_GetFunction(PyObject*);
PyObject* PyCFunction_GetSelf(PyObject*);
PyObject* PyBool_FromLong(long);
PyObject* PyFloat_FromDouble(double);
PyObject* PyLong_FromLongLong(long long);
long long PyLong_AsLongLong(PyObject*);
double PyFloat_AsDouble(PyObject*);
PyObject* PyList_New(ptrdiff_t);
int PyList_SetItem(PyObject*, ptrdiff_t, PyObject*);
int PyList_Append(PyObject*, PyObject*);
PyObject* PyList_GetItem(PyObject*, ptrdiff_t);
ptrdiff_t PyList_Size(PyObject*);
PyObject* PyTuple_New(ptrdiff_t);
int PyTuple_SetItem(PyObject*, ptrdiff_t, PyObject*);
PyObject* PyTuple_GetItem(PyObject*, ptrdiff_t);
ptrdiff_t PyTuple_Size(PyObject*);
PyObject* PyUnicode_InternFromString(const char*);
const char* PyUnicode_AsUTF8AndSize(PyObject*, ptrdiff_t*);
PyObject* PyBytes_FromStringAndSize(const char*, ptrdiff_t);
int PyBytes_AsStringAndSize(PyObject*, char**, ptrdiff_t*);
PyObject* PyErr_Occurred();
void PyErr_SetString(PyObject*, const char*);
void PyErr_Clear();
int PyErr_ExceptionMatches(PyObject*);
void PyErr_Fetch(PyObject**, PyObject**, PyObject**);
int PyGILState_Ensure();
void PyGILState_Release(int);
PyThreadState* PyEval_SaveThread();
void PyEval_RestoreThread(PyThreadState*);
}

namespace polyphase {

inline PyObject* none() {
  Py_IncRef(&_Py_NoneStruct);
  return &_Py_NoneStruct;
}

}  // namespace polyphase
