// An extension's interface to Python: a table of functions over plain values. The glue, which is compiled separately
// and only once, makes a Python module of it.
#pragma once

#include "warpsmith/tensor.h"
#include "warpsmith/value.h"

#include <optional>
#include <tuple>

namespace warpsmith {

struct Mismatch : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class T, class = void> struct From;
template <> struct From<at::Tensor> {
  static at::Tensor take(Value& value) {
    if (value.kind != kTensor) throw Mismatch("a tensor");
    return at::Tensor(static_cast<AtenTensorHandle>(std::exchange(value.pointer, nullptr)));
  }
};
template <> struct From<bool> {
  static bool take(Value& value) {
    if (value.kind != kBoolean) throw Mismatch("a bool");
    return value.integer != 0;
  }
};
template <class T> struct From<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>>> {
  static T take(Value& value) {
    if (value.kind != kInteger && value.kind != kBoolean) throw Mismatch("an int");
    T result = static_cast<T>(value.integer);
    if (static_cast<int64_t>(result) != value.integer) throw Mismatch("an int of its size");
    return result;
  }
};
template <class T> struct From<T, std::enable_if_t<std::is_floating_point_v<T>>> {
  static T take(Value& value) {
    if (value.kind == kInteger || value.kind == kBoolean) return static_cast<T>(value.integer);
    if (value.kind != kReal) throw Mismatch("a float");
    return static_cast<T>(value.real);
  }
};
template <> struct From<std::string> {
  static std::string take(Value& value) {
    if (value.kind != kText) throw Mismatch("a str");
    return std::string(static_cast<const char*>(value.pointer), static_cast<size_t>(value.integer));
  }
};
template <class T> struct From<std::vector<T>> {
  static std::vector<T> take(Value& value) {
    if (value.kind != kList) throw Mismatch("a list");
    std::vector<T> result;
    auto* items = static_cast<Value*>(value.pointer);
    for (int64_t i = 0; i < value.integer; ++i) result.push_back(From<T>::take(items[i]));
    return result;
  }
};
template <class T> struct From<std::optional<T>> {
  static std::optional<T> take(Value& value) {
    if (value.kind == kNone) return std::nullopt;
    return From<T>::take(value);
  }
};

template <class T, class = void> struct To;
template <> struct To<at::Tensor> {
  static Value make(at::Tensor result) {
    Value value;
    if (result.defined()) value = {kTensor, 0, 0.0, result.release()};
    return value;
  }
};
template <class T> struct To<T, std::enable_if_t<std::is_integral_v<T>>> {
  static Value make(T result) { return {std::is_same_v<T, bool> ? kBoolean : kInteger, static_cast<int64_t>(result)}; }
};
template <class T> struct To<T, std::enable_if_t<std::is_floating_point_v<T>>> {
  static Value make(T result) { return {kReal, 0, static_cast<double>(result)}; }
};
template <> struct To<std::string> {
  static Value make(std::string result) {
    static thread_local std::string kept;
    kept = std::move(result);
    return {kText, static_cast<int64_t>(kept.size()), 0.0, kept.data()};
  }
};
template <class T> struct IsVector : std::false_type {};
template <class T> struct IsVector<std::vector<T>> : std::true_type {};
template <class T> struct To<std::vector<T>> {
  static_assert(!IsVector<T>::value && !std::is_same_v<T, std::string>, "a list of these is not in the thin headers");
  static Value make(std::vector<T> results) {
    static thread_local std::vector<Value> kept;
    kept.clear();
    for (auto& one : results) kept.push_back(To<T>::make(std::move(one)));
    return {kList, static_cast<int64_t>(kept.size()), 0.0, kept.data()};
  }
};

template <class R, class... A, size_t... I>
Value invoke(R (*function)(A...), Value* arguments, std::index_sequence<I...>) {
  static thread_local std::string expected;
  int64_t index = 0;
  auto take = [&](auto* kind, Value& value) {
    using T = std::remove_pointer_t<decltype(kind)>;
    ++index;
    return From<T>::take(value);
  };
  std::optional<std::tuple<std::decay_t<A>...>> taken;
  try {
    // Braces, so that arguments are converted from left to right.
    taken.emplace(std::tuple<std::decay_t<A>...>{take(static_cast<std::decay_t<A>*>(nullptr), arguments[I])...});
  } catch (const Mismatch& error) {
    expected = error.what();
    return {kMismatch, index - 1, 0.0, expected.data()};
  }
  if constexpr (std::is_void_v<R>) {
    function(std::forward<A>(std::get<I>(*taken))...);
    return Value();
  } else {
    return To<std::decay_t<R>>::make(function(std::forward<A>(std::get<I>(*taken))...));
  }
}

inline Value raised(Exception kind, const char* what) {
  static thread_local std::string kept;
  kept = what;
  return {kRaised, kind, 0.0, kept.data()};
}

// Our own exceptions end here: the glue would not recognise them.
template <class R, class... A> Value call(void* function, Value* arguments) {
  try {
    return invoke(reinterpret_cast<R (*)(A...)>(function), arguments, std::index_sequence_for<A...>());
  } catch (const c10::IndexError& error) {
    return raised(kIndexError, error.what());
  } catch (const c10::NotImplementedError& error) {
    return raised(kNotImplementedError, error.what());
  } catch (const c10::ValueError& error) {
    return raised(kValueError, error.what());
  } catch (const c10::Error& error) {
    return raised(kRuntimeError, error.what());
  }
}

class Module {
 public:
  template <class R, class... A> Module& def(const char* name, R (*function)(A...), const char* doc = "") {
    functions.push_back({name, doc, sizeof...(A), &call<R, A...>, reinterpret_cast<void*>(function)});
    return *this;
  }
  std::string& doc() { return doc_; }

  std::vector<Function> functions;

 private:
  std::string doc_;
};

}  // namespace warpsmith

namespace torch {
// load_inline writes it around every function that it exports.
template <class F> F wrap_pybind_function(F function) { return function; }
}  // namespace torch

namespace pybind11 {
using module_ = warpsmith::Module;
using module = warpsmith::Module;
}  // namespace pybind11

// The one symbol that the glue looks for, by the module's name: it gives the functions and their number.
#define WARPSMITH_JOIN(one, other) one##other
#define WARPSMITH_MODULE(name, variable)                                                       \
  static void WARPSMITH_JOIN(warpsmith_fill_, name)(::warpsmith::Module&);                     \
  extern "C" __attribute__((visibility("default"))) const ::warpsmith::Function* WARPSMITH_JOIN( \
      warpsmith_module_, name)(size_t * count) {                                               \
    static ::warpsmith::Module made;                                                           \
    if (made.functions.empty()) WARPSMITH_JOIN(warpsmith_fill_, name)(made);                   \
    *count = made.functions.size();                                                            \
    return made.functions.data();                                                              \
  }                                                                                            \
  static void WARPSMITH_JOIN(warpsmith_fill_, name)(::warpsmith::Module& variable)
#define PYBIND11_MODULE(name, variable, ...) WARPSMITH_MODULE(name, variable)
