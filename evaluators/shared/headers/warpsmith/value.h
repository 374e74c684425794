// What passes between an extension and the glue: plain values and a table of functions, in no type of torch's.
#pragma once

#include <cstddef>
#include <cstdint>

namespace warpsmith {

enum Kind : int32_t {
  kRaised = -2,    // of a result: an exception of kind `integer`, its message is the text in `pointer`
  kMismatch = -1,  // of a result: argument `integer` is not what the text in `pointer` names
  kNone = 0,
  kTensor = 1,
  kInteger = 2,
  kReal = 3,
  kBoolean = 4,
  kText = 5,
  kList = 6,
};

enum Exception : int32_t { kRuntimeError = 0, kIndexError = 1, kNotImplementedError = 2, kValueError = 3 };

// One argument or result. Who takes a tensor's handle sets `pointer` to null and owns it from then on. A text or a list
// belongs to who made the value, and lives until the next call of the same thread.
struct Value {
  int32_t kind = kNone;
  int64_t integer = 0;  // of a text or list: its length
  double real = 0.0;
  void* pointer = nullptr;  // a tensor's handle, a text's bytes, a list's Values
};

struct Function {
  const char* name;
  const char* doc;
  int64_t arity;
  Value (*call)(void* function, Value* arguments);
  void* function;
};

}  // namespace warpsmith
