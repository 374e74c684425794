// torch::Tensor over a handle of libtorch, and the functions that make tensors.
#pragma once

#include "warpsmith/core.h"

#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace caffe2 {
class TypeMeta {
 public:
  TypeMeta(c10::ScalarType type) : type_(type) {}
  c10::ScalarType toScalarType() const { return type_; }
  const char* name() const {
    switch (type_) {
      case c10::ScalarType::Byte: return "unsigned char";
      case c10::ScalarType::Char: return "signed char";
      case c10::ScalarType::Short: return "short int";
      case c10::ScalarType::Int: return "int";
      case c10::ScalarType::Long: return "long int";
      case c10::ScalarType::Half: return "c10::Half";
      case c10::ScalarType::Float: return "float";
      case c10::ScalarType::Double: return "double";
      case c10::ScalarType::Bool: return "bool";
      case c10::ScalarType::BFloat16: return "c10::BFloat16";
    }
    return "nullptr (uninitialized)";
  }
  size_t itemsize() const { return c10::elementSize(type_); }
  bool operator==(const TypeMeta& other) const { return type_ == other.type_; }
  bool operator!=(const TypeMeta& other) const { return type_ != other.type_; }

 private:
  c10::ScalarType type_;
};
inline bool operator==(TypeMeta one, c10::ScalarType other) { return one.toScalarType() == other; }
inline bool operator!=(TypeMeta one, c10::ScalarType other) { return one.toScalarType() != other; }
inline bool operator==(c10::ScalarType one, TypeMeta other) { return other == one; }
inline bool operator!=(c10::ScalarType one, TypeMeta other) { return other != one; }
inline std::string text_of(TypeMeta type) { return type.name(); }
inline std::ostream& operator<<(std::ostream& stream, TypeMeta type) { return stream << type.name(); }
}  // namespace caffe2

namespace c10 {
inline ScalarType default_type();  // in operators.h
inline ScalarType typeMetaToScalarType(caffe2::TypeMeta type) { return type.toScalarType(); }

class TensorOptions {
 public:
  TensorOptions() = default;
  TensorOptions(ScalarType type) : dtype_(type) {}
  TensorOptions(caffe2::TypeMeta type) : dtype_(type.toScalarType()) {}
  TensorOptions(Device device) : device_(device) {}
  TensorOptions(DeviceType type) : device_(Device(type)) {}
  TensorOptions dtype(ScalarType type) const { auto copy = *this; copy.dtype_ = type; return copy; }
  TensorOptions dtype(caffe2::TypeMeta type) const { return dtype(type.toScalarType()); }
  TensorOptions device(Device device) const { auto copy = *this; copy.device_ = device; return copy; }
  TensorOptions device(DeviceType type, DeviceIndex index = -1) const { return device(Device(type, index)); }
  caffe2::TypeMeta dtype() const { return dtype_ ? *dtype_ : default_type(); }
  Device device() const { return device_.value_or(Device(DeviceType::CPU)); }
  bool has_dtype() const { return dtype_.has_value(); }
  bool has_device() const { return device_.has_value(); }

 private:
  std::optional<ScalarType> dtype_;
  std::optional<Device> device_;
};
}  // namespace c10

namespace at {
using c10::ArrayRef;
using c10::Device;
using c10::DeviceType;
using c10::IntArrayRef;
using c10::MemoryFormat;
using c10::Scalar;
using c10::ScalarType;
using c10::TensorOptions;
using c10::kCPU;
using c10::kCUDA;
#ifdef WARPSMITH_HALF
using c10::BFloat16;
using c10::Half;
#endif
constexpr ScalarType kByte = ScalarType::Byte, kUInt8 = ScalarType::Byte, kChar = ScalarType::Char;
constexpr ScalarType kInt8 = ScalarType::Char, kShort = ScalarType::Short, kInt16 = ScalarType::Short;
constexpr ScalarType kInt = ScalarType::Int, kInt32 = ScalarType::Int, kLong = ScalarType::Long;
constexpr ScalarType kInt64 = ScalarType::Long, kHalf = ScalarType::Half, kFloat16 = ScalarType::Half;
constexpr ScalarType kFloat = ScalarType::Float, kFloat32 = ScalarType::Float, kDouble = ScalarType::Double;
constexpr ScalarType kFloat64 = ScalarType::Double, kBool = ScalarType::Bool, kBFloat16 = ScalarType::BFloat16;

inline bool isFloatingType(ScalarType type) {
  return type == kFloat || type == kDouble || type == kHalf || type == kBFloat16;
}

template <class T> struct DefaultPtrTraits { using PtrType = T*; };

class Tensor;
inline Tensor empty(IntArrayRef sizes, TensorOptions options = {});

// Operators of one tensor, and of a tensor and a tensor or number (operators.h).
#define WARPSMITH_UNARY(OP)                                                                                        \
  OP(abs) OP(ceil) OP(cos) OP(erf) OP(exp) OP(expm1) OP(floor) OP(log) OP(log10) OP(log1p) OP(log2) OP(neg)        \
  OP(reciprocal) OP(relu) OP(round) OP(rsqrt) OP(sigmoid) OP(sign) OP(silu) OP(sin) OP(sqrt) OP(square) OP(tanh)
#define WARPSMITH_BINARY(OP) OP(mul) OP(div) OP(lt) OP(gt) OP(le) OP(ge) OP(eq) OP(ne)

// The result of `tensor.type()`: a class that is left from torch 1, and is not a ScalarType.
class DeprecatedTypeProperties {
 public:
  DeprecatedTypeProperties(ScalarType type, bool is_cuda) : type_(type), is_cuda_(is_cuda) {}
  ScalarType scalarType() const { return type_; }
  bool is_cuda() const { return is_cuda_; }
  operator TensorOptions() const { return TensorOptions(type_).device(is_cuda_ ? kCUDA : kCPU); }
  bool operator==(const DeprecatedTypeProperties& other) const {
    return type_ == other.type_ && is_cuda_ == other.is_cuda_;
  }
  bool operator!=(const DeprecatedTypeProperties& other) const { return !(*this == other); }

 private:
  ScalarType type_;
  bool is_cuda_;
};

class Tensor {
 public:
  Tensor() = default;
  // Takes the handle over.
  explicit Tensor(AtenTensorHandle handle) : handle_(handle) {}
  Tensor(const Tensor& other) {
    if (other.handle_) c10::check(aoti_torch_new_tensor_handle(other.handle_, &handle_));
  }
  Tensor(Tensor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Tensor& operator=(const Tensor& other) & { return *this = Tensor(other); }
  Tensor& operator=(Tensor&& other) & noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  // An assignment to the result of an expression, usually a view (`x[0] = y`), writes the values into it.
  Tensor& operator=(const Tensor& other) && { return copy_(other); }
  Tensor& operator=(Tensor&& other) && { return copy_(other); }
  Tensor& operator=(const Scalar& value) && { return fill_(value); }
  ~Tensor() {
    if (handle_) aoti_torch_delete_tensor_object(handle_);
  }

  AtenTensorHandle handle() const { return handle_; }
  AtenTensorHandle release() { return std::exchange(handle_, nullptr); }

  bool defined() const {
    bool result = false;
    if (handle_) c10::check(aoti_torch_is_defined(handle_, &result));
    return result;
  }
  int64_t dim() const { return get<int64_t>(aoti_torch_get_dim); }
  int64_t ndimension() const { return dim(); }
  int64_t numel() const { return get<int64_t>(aoti_torch_get_numel); }
  int64_t storage_offset() const { return get<int64_t>(aoti_torch_get_storage_offset); }
  IntArrayRef sizes() const { return {get<int64_t*>(aoti_torch_get_sizes), static_cast<size_t>(dim())}; }
  IntArrayRef strides() const { return {get<int64_t*>(aoti_torch_get_strides), static_cast<size_t>(dim())}; }
  int64_t size(int64_t d) const { return sizes()[wrapped(d)]; }
  int64_t stride(int64_t d) const { return strides()[wrapped(d)]; }
  ScalarType scalar_type() const { return static_cast<ScalarType>(get<int32_t>(aoti_torch_get_dtype)); }
  caffe2::TypeMeta dtype() const { return scalar_type(); }
  int64_t element_size() const { return c10::elementSize(scalar_type()); }
  int64_t itemsize() const { return element_size(); }
  size_t nbytes() const { return numel() * element_size(); }
  DeprecatedTypeProperties type() const { return {scalar_type(), is_cuda()}; }
  Device device() const {
    auto type = static_cast<DeviceType>(get<int32_t>(aoti_torch_get_device_type));
    // The device of a CPU tensor has no index in torch, and index 0 in the C interface.
    return type == DeviceType::CPU ? Device(type) : Device(type, get_device());
  }
  c10::DeviceIndex get_device() const {
    return is_cuda() ? static_cast<c10::DeviceIndex>(get<int32_t>(aoti_torch_get_device_index)) : -1;
  }
  bool is_cuda() const { return get<int32_t>(aoti_torch_get_device_type) == static_cast<int32_t>(DeviceType::CUDA); }
  bool is_cpu() const { return get<int32_t>(aoti_torch_get_device_type) == static_cast<int32_t>(DeviceType::CPU); }
  bool is_contiguous() const { return get<bool>(aoti_torch_is_contiguous); }
  bool is_contiguous(MemoryFormat format) const;
  bool is_floating_point() const { return isFloatingType(scalar_type()); }
  TensorOptions options() const { return TensorOptions(scalar_type()).device(device()); }

  void* data_ptr() const { return get<void*>(aoti_torch_get_data_ptr); }
  const void* const_data_ptr() const { return data_ptr(); }
  void* mutable_data_ptr() const { return data_ptr(); }
  template <class T> T* data_ptr() const {
    auto wanted = c10::CppTypeToScalarType<std::remove_const_t<T>>::value;
    TORCH_CHECK(scalar_type() == wanted, "expected scalar type ", wanted, " but found ", scalar_type());
    return static_cast<T*>(data_ptr());
  }
  template <class T> const T* const_data_ptr() const { return data_ptr<T>(); }
  template <class T> T* mutable_data_ptr() const { return data_ptr<T>(); }
  template <class T> T* data() const { return data_ptr<T>(); }
  template <class T, size_t N> auto accessor() const&;
  template <class T, size_t N> auto accessor() && = delete;
  template <class T, size_t N, template <class> class Pointer = DefaultPtrTraits> auto packed_accessor32() const&;
  template <class T, size_t N, template <class> class Pointer = DefaultPtrTraits> auto packed_accessor32() && = delete;
  template <class T, size_t N, template <class> class Pointer = DefaultPtrTraits> auto packed_accessor64() const&;
  template <class T, size_t N, template <class> class Pointer = DefaultPtrTraits> auto packed_accessor64() && = delete;

  Tensor contiguous() const;
  Tensor clone() const {
    AtenTensorHandle made = nullptr;
    c10::check(aoti_torch_clone(handle_, &made));
    return Tensor(made);
  }
  Tensor& copy_(const Tensor& source, bool non_blocking = false) {
    c10::check(aoti_torch_copy_(handle_, source.handle_, non_blocking));
    return *this;
  }
  Tensor& zero_() {
    c10::check(aoti_torch_zero_(handle_));
    return *this;
  }

  // In operators.h.
#define WARPSMITH_DECLARE(name) \
  Tensor name() const;          \
  Tensor& name##_();
  WARPSMITH_UNARY(WARPSMITH_DECLARE)
#undef WARPSMITH_DECLARE
#define WARPSMITH_DECLARE(name)       \
  Tensor name(const Tensor& y) const; \
  Tensor name(const Scalar& y) const;
  WARPSMITH_BINARY(WARPSMITH_DECLARE)
  WARPSMITH_DECLARE(add)
  WARPSMITH_DECLARE(sub)
#undef WARPSMITH_DECLARE
#define WARPSMITH_DECLARE(op, name)     \
  Tensor& name(const Tensor& y);        \
  Tensor& name(const Scalar& y);        \
  Tensor& operator op(const Tensor& y); \
  Tensor& operator op(const Scalar& y);
  WARPSMITH_DECLARE(*=, mul_)
  WARPSMITH_DECLARE(/=, div_)
#undef WARPSMITH_DECLARE
#define WARPSMITH_DECLARE(name)                                                \
  Tensor name() const;                                                         \
  std::tuple<Tensor, Tensor> name(int64_t dim, bool keepdim = false) const;    \
  Tensor a##name(IntArrayRef dims = {}, bool keepdim = false) const;           \
  Tensor arg##name(std::optional<int64_t> dim = {}, bool keepdim = false) const;
  WARPSMITH_DECLARE(max)
  WARPSMITH_DECLARE(min)
#undef WARPSMITH_DECLARE
#define WARPSMITH_DECLARE(name)                              \
  Tensor name(std::optional<ScalarType> type = {}) const;    \
  Tensor name(IntArrayRef dims, bool keepdim = false, std::optional<ScalarType> type = {}) const;
  WARPSMITH_DECLARE(sum)
  WARPSMITH_DECLARE(mean)
#undef WARPSMITH_DECLARE
  Tensor softmax(int64_t dim, std::optional<ScalarType> type = {}) const;
  Tensor log_softmax(int64_t dim, std::optional<ScalarType> type = {}) const;
  Tensor cumsum(int64_t dim, std::optional<ScalarType> type = {}) const;
  Tensor cumprod(int64_t dim, std::optional<ScalarType> type = {}) const;
  Tensor operator-() const;
  Tensor matmul(const Tensor& y) const;
  Tensor mm(const Tensor& y) const;
  Tensor bmm(const Tensor& y) const;
  Tensor view(IntArrayRef sizes) const;
  Tensor reshape(IntArrayRef sizes) const;
  Tensor permute(IntArrayRef dims) const;
  Tensor expand(IntArrayRef sizes) const;
  Tensor flip(IntArrayRef dims) const;
  Tensor transpose(int64_t a, int64_t b) const;
  Tensor t() const;
  Tensor detach() const;
  Tensor unsqueeze(int64_t dim) const;
  Tensor squeeze() const;
  Tensor squeeze(int64_t dim) const;
  Tensor flatten(int64_t first = 0, int64_t last = -1) const;
  Tensor select(int64_t dim, int64_t index) const;
  Tensor narrow(int64_t dim, int64_t start, int64_t length) const;
  Tensor slice(int64_t dim = 0, std::optional<int64_t> start = {}, std::optional<int64_t> end = {},
               int64_t step = 1) const;
  Tensor index_select(int64_t dim, const Tensor& index) const;
  Tensor operator[](int64_t index) const;
  Tensor to(TensorOptions options, bool non_blocking = false, bool copy = false) const;
  Tensor to(Device target, ScalarType type, bool non_blocking = false, bool copy = false) const;
  Tensor toType(ScalarType type) const { return to(type); }
  Tensor cuda() const { return to(Device(DeviceType::CUDA)); }
  Tensor cpu() const { return to(Device(DeviceType::CPU)); }
  Tensor contiguous(MemoryFormat format) const;
  Tensor& fill_(const Scalar& value);
  template <class T> T item() const;

 private:
  template <class T, class Getter> T get(Getter getter) const {
    if (!handle_) throw c10::Error("tensor does not have a device");
    T value{};
    c10::check(getter(handle_, &value));
    return value;
  }
  bool lies_in(std::initializer_list<size_t> order) const;
  size_t wrapped(int64_t d) const {
    int64_t n = dim();
    TORCH_CHECK_INDEX(d >= -n && d < n, "Dimension out of range (expected to be in range of [", -n, ", ", n - 1,
                "], but got ", d, ")");
    return static_cast<size_t>(d < 0 ? d + n : d);
  }

  AtenTensorHandle handle_ = nullptr;
};

class NoGradGuard {
 public:
  NoGradGuard() : before_(aoti_torch_grad_mode_is_enabled()) { aoti_torch_grad_mode_set_enabled(false); }
  NoGradGuard(const NoGradGuard&) = delete;
  NoGradGuard& operator=(const NoGradGuard&) = delete;
  ~NoGradGuard() { aoti_torch_grad_mode_set_enabled(before_); }

 private:
  bool before_;
};

inline Tensor empty_strided(IntArrayRef sizes, IntArrayRef strides, TensorOptions options = {}) {
  auto device = options.device();
  int32_t index = device.index();
  if (device.is_cuda() && index < 0) c10::check(aoti_torch_get_current_device_index(&index));
  AtenTensorHandle made = nullptr;
  c10::check(aoti_torch_empty_strided(static_cast<int64_t>(sizes.size()), sizes.data(), strides.data(),
                                      static_cast<int32_t>(options.dtype().toScalarType()),
                                      static_cast<int32_t>(device.type()), index < 0 ? 0 : index, &made));
  return Tensor(made);
}
inline std::vector<int64_t> contiguous_strides(IntArrayRef sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t step = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = step;
    step *= sizes[i] > 1 ? sizes[i] : 1;
  }
  return strides;
}
inline Tensor empty(IntArrayRef sizes, TensorOptions options) {
  for (int64_t size : sizes)
    TORCH_CHECK(size >= 0, "Trying to create tensor with negative dimension ", size, ": ", sizes);
  return empty_strided(sizes, contiguous_strides(sizes), options);
}
#ifdef WARPSMITH_CPU  // the builder sets it if it builds for no GPU; for a GPU, only torch's own headers have this
// A tensor over memory that it does not own.
inline Tensor from_blob(void* data, IntArrayRef sizes, IntArrayRef strides, TensorOptions options = {}) {
  AtenTensorHandle made = nullptr;
  c10::check(aoti_torch_create_tensor_from_blob(data, static_cast<int64_t>(sizes.size()), sizes.data(), strides.data(),
                                                0, static_cast<int32_t>(options.dtype().toScalarType()),
                                                static_cast<int32_t>(options.device().type()), 0, &made));
  return Tensor(made);
}
inline Tensor from_blob(void* data, IntArrayRef sizes, TensorOptions options = {}) {
  return from_blob(data, sizes, contiguous_strides(sizes), options);
}
// The same, with a function to call when no tensor needs the memory any more.
template <class F, std::enable_if_t<std::is_invocable_v<F&, void*>, int> = 0>
Tensor from_blob(void* data, IntArrayRef sizes, IntArrayRef strides, const F& deleter, TensorOptions options = {}) {
  auto kept = std::make_unique<F>(deleter);
  auto release = [](void* memory, void* at) {
    std::unique_ptr<F> kept(static_cast<F*>(at));
    (*kept)(memory);
  };
  AtenTensorHandle made = nullptr;
  c10::check(torch_from_blob(data, static_cast<int64_t>(sizes.size()), sizes.data(), strides.data(), 0,
                             static_cast<int32_t>(options.dtype().toScalarType()),
                             static_cast<int32_t>(options.device().type()), -1, &made, 0, nullptr, 0, release,
                             kept.get()));
  kept.release();
  return Tensor(made);
}
template <class F, std::enable_if_t<std::is_invocable_v<F&, void*>, int> = 0>
Tensor from_blob(void* data, IntArrayRef sizes, const F& deleter, TensorOptions options = {}) {
  return from_blob(data, sizes, contiguous_strides(sizes), deleter, options);
}
#endif
inline Tensor zeros(IntArrayRef sizes, TensorOptions options = {}) {
  for (int64_t size : sizes) TORCH_CHECK(size >= 0, "zeros: Dimension size must be non-negative.");
  return empty(sizes, options).zero_();
}
inline Tensor Tensor::contiguous() const {
  return is_contiguous() ? *this : empty(sizes(), options()).copy_(*this);
}
Tensor empty_like_strided(const Tensor& other, TensorOptions options);  // in operators.h
inline Tensor empty_like(const Tensor& other, TensorOptions options) {
  if (!options.has_dtype()) options = options.dtype(other.scalar_type());
  if (!options.has_device()) options = options.device(other.device());
  bool plain = other.is_contiguous() && other.numel() > 0;
  return plain ? empty(other.sizes(), options) : empty_like_strided(other, options);
}
inline Tensor empty_like(const Tensor& other) { return empty_like(other, other.options()); }
template <class... Options> Tensor zeros_like(const Tensor& other, Options... options) {
  return empty_like(other, options...).zero_();
}
// Whether elements lie next to each other in this order of dimensions, the innermost first.
inline bool Tensor::lies_in(std::initializer_list<size_t> order) const {
  int64_t step = 1;
  for (size_t d : order) {
    if (sizes()[d] == 1) continue;
    if (strides()[d] != step) return false;
    step *= sizes()[d];
  }
  return true;
}
inline bool Tensor::is_contiguous(MemoryFormat format) const {
  if (format == MemoryFormat::ChannelsLast) return dim() == 4 && lies_in({1, 3, 2, 0});
  if (format == MemoryFormat::ChannelsLast3d) return dim() == 5 && lies_in({1, 4, 3, 2, 0});
  return is_contiguous();
}
}  // namespace at

namespace torch {
using namespace at;
using at::Tensor;
}  // namespace torch
