// The values that pass between an extension and the glue, and a table of functions: plain types, none of torch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace warpsmith {

enum Kind : int32_t {
  kRaised = -2,    // in a result: an exception of kind `integer`, with the text in `pointer` as its message
  kMismatch = -1,  // in a result: argument `integer` is not of the type that the text in `pointer` names
  kNone = 0,
  kTensor = 1,
  kInteger = 2,
  kReal = 3,
  kBoolean = 4,
  kText = 5,
  kList = 6,
};

enum Exception : int32_t { kRuntimeError = 0, kIndexError = 1, kNotImplementedError = 2, kValueError = 3 };

// One argument or result. A function that takes a tensor's handle sets `pointer` to null and owns the handle from then
// on. A text or a list belongs to the maker of the value, and lives until the next call of the same thread.
struct Value {
  int32_t kind = kNone;
  int64_t integer = 0;  // or the length of a text or list
  double real = 0.0;
  void* pointer = nullptr;  // the handle of a tensor, the bytes of a text, or the Values of a list
};

struct Function {
  const char* name;
  const char* doc;
  int64_t arity;
  Value (*call)(void* function, Value* arguments);
  void* function;
};

}  // namespace warpsmith
