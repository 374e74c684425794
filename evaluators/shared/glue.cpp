// Makes a Python module of an extension that was compiled against the thin headers. This file includes torch's own
// headers and takes half a minute to compile, once for an installation of torch.
#include <Python.h>
#include <dlfcn.h>
#include <torch/csrc/autograd/python_variable.h>

#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "warpsmith/value.h"

namespace {

using warpsmith::Function;
using warpsmith::Value;

// Keeps the memory that arguments point to, and drops tensors that no function took.
struct Arguments {
  std::vector<Value> values;
  std::deque<std::vector<Value>> lists;

  ~Arguments() {
    drop(values);
    for (auto& list : lists) drop(list);
  }
  static void drop(std::vector<Value>& values) {
    for (auto& value : values)
      if (value.kind == warpsmith::kTensor) delete static_cast<at::Tensor*>(value.pointer);
  }
};

// Throws std::invalid_argument for an object that no value can hold.
Value value_of(PyObject* object, Arguments& kept) {
  if (object == Py_None) return {};
  if (THPVariable_Check(object)) return {warpsmith::kTensor, 0, 0.0, new at::Tensor(THPVariable_Unpack(object))};
  if (PyBool_Check(object)) return {warpsmith::kBoolean, object == Py_True};
  if (PyLong_Check(object)) {
    int overflow = 0;
    long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow) throw std::invalid_argument("an int of 64 bits");
    return {warpsmith::kInteger, number};
  }
  if (PyFloat_Check(object)) return {warpsmith::kReal, 0, PyFloat_AS_DOUBLE(object)};
  if (PyUnicode_Check(object)) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(object, &size);
    if (!text) throw std::invalid_argument("a str in UTF-8");
    return {warpsmith::kText, size, 0.0, const_cast<char*>(text)};
  }
  if (PyList_Check(object) || PyTuple_Check(object)) {
    kept.lists.emplace_back();
    auto& list = kept.lists.back();  // the elements of a deque keep their addresses
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i)
      list.push_back(value_of(PySequence_Fast_GET_ITEM(object, i), kept));
    return {warpsmith::kList, static_cast<int64_t>(list.size()), 0.0, list.data()};
  }
  throw std::invalid_argument("a tensor, number, str, list or None");
}

PyObject* object_of(Value& value) {
  switch (value.kind) {
    case warpsmith::kTensor: {
      std::unique_ptr<at::Tensor> tensor(static_cast<at::Tensor*>(std::exchange(value.pointer, nullptr)));
      return THPVariable_Wrap(std::move(*tensor));
    }
    case warpsmith::kBoolean: return PyBool_FromLong(value.integer);
    case warpsmith::kInteger: return PyLong_FromLongLong(value.integer);
    case warpsmith::kReal: return PyFloat_FromDouble(value.real);
    case warpsmith::kText: return PyUnicode_FromStringAndSize(static_cast<const char*>(value.pointer), value.integer);
    case warpsmith::kList: {
      PyObject* list = PyList_New(value.integer);
      for (int64_t i = 0; list && i < value.integer; ++i)
        PyList_SET_ITEM(list, i, object_of(static_cast<Value*>(value.pointer)[i]));
      return list;
    }
    default: Py_RETURN_NONE;
  }
}

PyObject* type_error(const Function& function, int64_t index, const char* expected) {
  return PyErr_Format(PyExc_TypeError, "%s(): incompatible function arguments: argument %lld must be %s", function.name,
                      static_cast<long long>(index), expected);
}

PyObject* call(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  const auto& function = *static_cast<const Function*>(PyCapsule_GetPointer(self, nullptr));
  if (count != function.arity)
    return PyErr_Format(PyExc_TypeError, "%s(): incompatible function arguments: takes %lld, got %zd", function.name,
                        static_cast<long long>(function.arity), count);
  Arguments arguments;
  Py_ssize_t index = 0;
  try {
    arguments.values.reserve(count + 1);
    for (; index < count; ++index) arguments.values.push_back(value_of(given[index], arguments));
  } catch (const std::invalid_argument& error) {
    PyErr_Clear();
    return type_error(function, index, error.what());
  }
  arguments.values.emplace_back();  // so that there is an address even without arguments
  try {
    Value result = function.call(function.function, arguments.values.data());
    if (result.kind == warpsmith::kMismatch)
      return type_error(function, result.integer, static_cast<const char*>(result.pointer));
    if (result.kind == warpsmith::kRaised) {
      PyObject* const kinds[] = {PyExc_RuntimeError, PyExc_IndexError, PyExc_NotImplementedError, PyExc_ValueError};
      PyErr_SetString(kinds[result.integer], static_cast<const char*>(result.pointer));
      return nullptr;
    }
    return object_of(result);
  } catch (const std::out_of_range& error) {
    PyErr_SetString(PyExc_IndexError, error.what());
  } catch (const std::invalid_argument& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "the extension threw something that is no exception");
  }
  return nullptr;
}

// load(path, name): the module of an extension; ImportError if it cannot be loaded. It stays loaded for good.
PyObject* load(PyObject*, PyObject* arguments) {
  const char *path = nullptr, *name = nullptr;
  if (!PyArg_ParseTuple(arguments, "ss", &path, &name)) return nullptr;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return PyErr_Format(PyExc_ImportError, "%s", dlerror());
  using Table = const Function* (*)(size_t*);
  auto table = reinterpret_cast<Table>(dlsym(library, (std::string("warpsmith_module_") + name).c_str()));
  if (!table)
    return PyErr_Format(PyExc_ImportError, "dynamic module does not define module export function (PyInit_%s)", name);
  PyObject* module = PyModule_New(name);
  if (!module) return nullptr;
  size_t count = 0;
  const Function* functions = table(&count);
  for (size_t i = 0; i < count; ++i) {
    auto method = new PyMethodDef{functions[i].name, reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(call)),
                                  METH_FASTCALL, functions[i].doc};
    PyObject* self = PyCapsule_New(const_cast<Function*>(&functions[i]), nullptr, nullptr);
    PyObject* made = self ? PyCFunction_New(method, self) : nullptr;
    Py_XDECREF(self);
    if (!made || PyModule_AddObject(module, functions[i].name, made) < 0) {
      Py_XDECREF(made);
      Py_DECREF(module);
      return nullptr;
    }
  }
  if (PyModule_AddStringConstant(module, "__file__", path) < 0) Py_CLEAR(module);
  return module;
}

PyMethodDef methods[] = {{"load", load, METH_VARARGS, "The module of an extension."}, {nullptr, nullptr, 0, nullptr}};
PyModuleDef definition = {PyModuleDef_HEAD_INIT, "warpsmith_glue", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_warpsmith_glue() { return PyModule_Create(&definition); }
