// Scalars, devices, shapes and checks, by torch's names.
#pragma once

#include "warpsmith/c_interface.h"

#include <climits>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>
#ifdef _OPENMP
#include <omp.h>
#endif

#ifdef WARPSMITH_HALF  // the builder sets it for sources that name such a type: these two headers take a second
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>
#endif

namespace c10 {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
class IndexError : public Error {
 public:
  using Error::Error;
};
class NotImplementedError : public Error {
 public:
  using Error::Error;
};
class ValueError : public Error {
 public:
  using Error::Error;
};

namespace detail {
template <class T, class = void> struct HasText : std::false_type {};
template <class T> struct HasText<T, std::void_t<decltype(text_of(std::declval<const T&>()))>> : std::true_type {};

// The text that a stream would write, if possible without a stream. A library that has a C++ library of its own, beside
// that of the process, must not touch the state that streams share: numbers come out empty, or it crashes.
template <class T> void append(std::string& text, const T& part) {
  using Plain = std::decay_t<T>;
  if constexpr (std::is_same_v<Plain, char> || std::is_same_v<Plain, signed char> || std::is_same_v<Plain, unsigned char>) {
    text += static_cast<char>(part);
  } else if constexpr (std::is_integral_v<Plain>) {
    text += std::to_string(part);
  } else if constexpr (std::is_floating_point_v<Plain>) {
    char written[32];
    std::snprintf(written, sizeof(written), "%g", static_cast<double>(part));
    text += written;
  } else if constexpr (std::is_convertible_v<const T&, std::string>) {
    text += std::string(part);
  } else if constexpr (HasText<T>::value) {
    text += text_of(part);
  } else {
    std::ostringstream stream;
    stream << part;
    text += stream.str();
  }
}
template <class... Parts>
std::string joined(const Parts&... parts) {
  std::string text;
  (append(text, parts), ...);
  return text;
}
}  // namespace detail

// Throws the error of a failed call of libtorch. The C interface does not tell its kind, but the text does.
inline void check(int32_t status) {
  if (status == 0) return;
  const char* what = torch_exception_get_what_without_backtrace ? torch_exception_get_what_without_backtrace() : nullptr;
  std::string text = what && *what ? what : "a call of libtorch failed";
  if (text.find("not implemented for '") != std::string::npos) throw NotImplementedError(text);
  for (const char* part : {"out of range", "select() cannot be applied", "slice() cannot be applied",
                           "to have non-zero size", "argmax(): Expected", "argmin(): Expected"})
    if (text.find(part) != std::string::npos) throw IndexError(text);
  throw Error(text);
}

enum class ScalarType : int8_t {
  Byte = 0, Char = 1, Short = 2, Int = 3, Long = 4, Half = 5, Float = 6, Double = 7, Bool = 11, BFloat16 = 15,
};

inline const char* toString(ScalarType type) {
  switch (type) {
    case ScalarType::Byte: return "Byte";
    case ScalarType::Char: return "Char";
    case ScalarType::Short: return "Short";
    case ScalarType::Int: return "Int";
    case ScalarType::Long: return "Long";
    case ScalarType::Half: return "Half";
    case ScalarType::Float: return "Float";
    case ScalarType::Double: return "Double";
    case ScalarType::Bool: return "Bool";
    case ScalarType::BFloat16: return "BFloat16";
  }
  return "UNKNOWN_SCALAR";
}
inline std::string text_of(ScalarType type) { return toString(type); }
inline std::ostream& operator<<(std::ostream& stream, ScalarType type) { return stream << toString(type); }

inline int64_t elementSize(ScalarType type) {
  switch (type) {
    case ScalarType::Short: case ScalarType::Half: case ScalarType::BFloat16: return 2;
    case ScalarType::Int: case ScalarType::Float: return 4;
    case ScalarType::Long: case ScalarType::Double: return 8;
    default: return 1;
  }
}

template <class T> struct CppTypeToScalarType;
#define WARPSMITH_SCALAR(type, name) \
  template <> struct CppTypeToScalarType<type> { static constexpr ScalarType value = ScalarType::name; }
WARPSMITH_SCALAR(uint8_t, Byte);
WARPSMITH_SCALAR(int8_t, Char);
WARPSMITH_SCALAR(int16_t, Short);
WARPSMITH_SCALAR(int32_t, Int);
WARPSMITH_SCALAR(int64_t, Long);
WARPSMITH_SCALAR(float, Float);
WARPSMITH_SCALAR(double, Double);
WARPSMITH_SCALAR(bool, Bool);
#ifdef WARPSMITH_HALF
WARPSMITH_SCALAR(Half, Half);
WARPSMITH_SCALAR(BFloat16, BFloat16);
#endif
#undef WARPSMITH_SCALAR

enum class DeviceType : int8_t { CPU = 0, CUDA = 1 };
using DeviceIndex = int8_t;
constexpr DeviceType kCPU = DeviceType::CPU;
constexpr DeviceType kCUDA = DeviceType::CUDA;

struct Device {
  Device(DeviceType type, DeviceIndex index = -1) : type_(type), index_(index) {}
  DeviceType type() const { return type_; }
  DeviceIndex index() const { return index_; }
  bool has_index() const { return index_ != -1; }
  bool is_cuda() const { return type_ == DeviceType::CUDA; }
  bool is_cpu() const { return type_ == DeviceType::CPU; }
  bool operator==(const Device& other) const { return type_ == other.type_ && index_ == other.index_; }
  bool operator!=(const Device& other) const { return !(*this == other); }
  std::string str() const {
    return std::string(is_cuda() ? "cuda" : "cpu") + (has_index() ? ":" + std::to_string(index_) : "");
  }

 private:
  DeviceType type_;
  DeviceIndex index_;
};
inline std::string text_of(const Device& device) { return device.str(); }
inline std::ostream& operator<<(std::ostream& stream, const Device& device) { return stream << device.str(); }

template <class T>
class ArrayRef {
 public:
  ArrayRef() = default;
  ArrayRef(const T* data, size_t size) : data_(data), size_(size) {}
  ArrayRef(const T& value) : data_(&value), size_(1) {}
  ArrayRef(const std::vector<T>& values) : data_(values.data()), size_(values.size()) {}
  ArrayRef(const std::initializer_list<T>& values) : data_(values.begin()), size_(values.size()) {}
  const T* data() const { return data_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T& operator[](size_t index) const { return data_[index]; }
  const T& back() const { return data_[size_ - 1]; }
  const T& front() const { return data_[0]; }
  std::vector<T> vec() const { return std::vector<T>(begin(), end()); }
  bool equals(ArrayRef other) const {
    if (size_ != other.size_) return false;
    for (size_t i = 0; i < size_; ++i)
      if (!(data_[i] == other.data_[i])) return false;
    return true;
  }

 private:
  const T* data_ = nullptr;
  size_t size_ = 0;
};
template <class T> bool operator==(ArrayRef<T> one, ArrayRef<T> other) { return one.equals(other); }
template <class T> bool operator!=(ArrayRef<T> one, ArrayRef<T> other) { return !one.equals(other); }
template <class T> std::string text_of(ArrayRef<T> values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) text += (i ? ", " : "") + detail::joined(values[i]);
  return text + "]";
}
template <class T> std::ostream& operator<<(std::ostream& stream, ArrayRef<T> values) { return stream << text_of(values); }
using IntArrayRef = ArrayRef<int64_t>;

// A C++ number.
class Scalar {
 public:
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  Scalar(T value)
      : kind_(std::is_same_v<T, bool> ? 0 : std::is_integral_v<T> ? 1 : 2),
        integer_(static_cast<int64_t>(value)),
        real_(static_cast<double>(value)) {}
  bool isBoolean() const { return kind_ == 0; }
  bool isIntegral(bool with_booleans) const { return kind_ == 1 || (with_booleans && kind_ == 0); }
  bool isFloatingPoint() const { return kind_ == 2; }
  template <class T> T to() const { return kind_ == 2 ? static_cast<T>(real_) : static_cast<T>(integer_); }

 private:
  int kind_;
  int64_t integer_;
  double real_;
};

enum class MemoryFormat : int8_t { Contiguous = 0, Preserve = 1, ChannelsLast = 2, ChannelsLast3d = 3 };

}  // namespace c10

#define WARPSMITH_CHECK(kind, condition, ...)                                                              \
  do {                                                                                                     \
    if (!(condition))                                                                                      \
      throw ::c10::kind(::warpsmith::message("Expected " #condition " to be true, but got false.", ##__VA_ARGS__)); \
  } while (0)
#define TORCH_CHECK(condition, ...) WARPSMITH_CHECK(Error, condition, ##__VA_ARGS__)
#define TORCH_CHECK_INDEX(condition, ...) WARPSMITH_CHECK(IndexError, condition, ##__VA_ARGS__)
#define TORCH_INTERNAL_ASSERT(condition, ...) TORCH_CHECK(condition, ##__VA_ARGS__)
#define TORCH_CHECK_VALUE(condition, ...) WARPSMITH_CHECK(ValueError, condition, ##__VA_ARGS__)
#define AT_ASSERTM(condition, ...) TORCH_CHECK(condition, ##__VA_ARGS__)
#define AT_ERROR(...) throw ::c10::Error(::c10::detail::joined(__VA_ARGS__))

namespace warpsmith {
inline std::string message(const char* otherwise) { return otherwise; }
template <class... Parts>
std::string message(const char*, const Parts&... parts) {
  return ::c10::detail::joined(parts...);
}
}  // namespace warpsmith
