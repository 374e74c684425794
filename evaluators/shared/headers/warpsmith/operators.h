// The operators of torch that inline extensions call in addition to their own kernels, through torch's dispatcher.
#pragma once

#include "warpsmith/dispatcher.h"

#include <limits>

extern "C" {
int32_t aoti_torch_aten_subtract_Tensor(AtenTensorHandle, AtenTensorHandle, double, AtenTensorHandle*);
int32_t aoti_torch_aten_pad(AtenTensorHandle, const int64_t*, int64_t, const char*, double*, AtenTensorHandle*);
int32_t aoti_torch_aten_fill__Scalar(AtenTensorHandle, double);
int32_t aoti_torch_scalar_to_tensor_float64(double, AtenTensorHandle*);
int32_t aoti_torch_scalar_to_tensor_int64(int64_t, AtenTensorHandle*);
int32_t aoti_torch_scalar_to_tensor_bool(bool, AtenTensorHandle*);
}

namespace warpsmith {
using at::Tensor;
using c10::Scalar;
using c10::ScalarType;
using Dims = c10::ArrayRef<int64_t>;
constexpr std::nullopt_t kNothing = std::nullopt;

inline Tensor tensor_of(const Scalar& number) {
  AtenTensorHandle made = nullptr;
  if (number.isFloatingPoint()) c10::check(aoti_torch_scalar_to_tensor_float64(number.to<double>(), &made));
  else if (number.isBoolean()) c10::check(aoti_torch_scalar_to_tensor_bool(number.to<bool>(), &made));
  else c10::check(aoti_torch_scalar_to_tensor_int64(number.to<int64_t>(), &made));
  return Tensor(made);
}
inline int category(ScalarType type) {
  if (type == ScalarType::Bool) return 0;
  return at::isFloatingType(type) ? 2 : 1;
}
// A number as a tensor without dimensions. It promotes the type of a tensor that has dimensions as a number would.
inline Tensor number_beside(const Tensor& beside, const Scalar& number) {
  Tensor made = tensor_of(number);
  bool to_real = number.isFloatingPoint() && category(beside.scalar_type()) < 2;
  return to_real ? made.to(c10::default_type()) : made;
}
// An operator of a tensor and a number. A tensor without dimensions gets one, so that its type outweighs the number's.
template <class Operator> Tensor with_number(const Tensor& x, const Scalar& number, Operator operate_on) {
  if (x.dim() == 0) return operate_on(x.view({1}), number_beside(x, number)).view({});
  return operate_on(x, number_beside(x, number));
}

template <class T, class F> T converted(F value) {
  bool fits = true;
  if constexpr (std::is_floating_point_v<T>) {
    double wide = static_cast<double>(value);
    fits = !std::isfinite(wide) || std::abs(wide) <= std::numeric_limits<T>::max();
  } else if constexpr (!std::is_same_v<T, bool>) {
    using Limits = std::numeric_limits<T>;
    fits = static_cast<long double>(value) >= Limits::lowest() && static_cast<long double>(value) <= Limits::max();
  }
  caffe2::TypeMeta type = c10::CppTypeToScalarType<T>::value;
  TORCH_CHECK(fits, "value cannot be converted to type ", type, " without overflow");
  return static_cast<T>(value);
}

inline ScalarType common_type(const Tensor& a, const Tensor& b) {
  uint64_t stack[2];
  operate_into(stack, "aten::result_type", "Tensor", a, b);
  return static_cast<ScalarType>(static_cast<int32_t>(stack[0]));
}
// For integers: subtraction in the C interface has a real factor and cannot take them. One copy slower than torch's.
inline Tensor integer_sum(const Tensor& a, const Tensor& b, ScalarType type) {
  const Tensor& where = a.dim() == 0 && a.is_cpu() ? b : a;
  for (const Tensor* one : {&a, &b})
    TORCH_CHECK(one->device() == where.device() || (one->dim() == 0 && one->is_cpu()),
                "Expected all tensors to be on the same device, but found at least two devices, ", a.device(), " and ",
                b.device(), "!");
  Tensor both[] = {a.to(where.device(), type), b.to(where.device(), type)};
  if (!both[0].sizes().equals(both[1].sizes())) {
    Tensor shape = operate("aten::maximum", "", operate("aten::zeros_like", "", both[0], kNothing, kNothing, kNothing,
                           kNothing, kNothing), both[1]);
    for (Tensor& one : both) one = one.expand(shape.sizes());
  }
  Tensor stacked = operate("aten::stack", "", c10::ArrayRef<Tensor>(both, 2), int64_t{0});
  const int64_t first = 0;
  return operate("aten::sum", "dim_IntList", stacked, std::optional<Dims>(Dims(&first, 1)), false,
                 std::optional<ScalarType>(type));
}
// a + factor * b, for a factor of 1 or -1.
inline Tensor sum_of(const Tensor& a, const Tensor& b, double factor) {
  ScalarType type = common_type(a, b);
  bool booleans = a.scalar_type() == ScalarType::Bool || b.scalar_type() == ScalarType::Bool;
  if (booleans && factor > 0) {
    if (type == ScalarType::Bool) return operate("aten::logical_or", "", a, b);
    return sum_of(a.to(type), b.to(type), factor);
  }
  if (category(type) == 1 && !booleans) return integer_sum(a, factor < 0 ? b.to(type).neg() : b, type);
  AtenTensorHandle made = nullptr;
  c10::check(aoti_torch_aten_subtract_Tensor(a.handle(), b.handle(), -factor, &made));
  return Tensor(made);
}
}  // namespace warpsmith

namespace c10 {
inline ScalarType default_type() {
  using warpsmith::kNothing;
  return warpsmith::operate("aten::empty", "memory_format", IntArrayRef(), kNothing, kNothing, kNothing, kNothing,
                            kNothing).scalar_type();
}
}  // namespace c10

namespace at {
using c10::Scalar;
namespace ops = ::warpsmith;

// Operators of one tensor alone. (`name_` changes it in place.)
#define WARPSMITH_DEFINE(name)                                                                       \
  inline Tensor Tensor::name() const { return ::warpsmith::operate("aten::" #name, "", *this); }     \
  inline Tensor& Tensor::name##_() {                                                                 \
    ::warpsmith::operate("aten::" #name "_", "", *this);                                             \
    return *this;                                                                                    \
  }                                                                                                  \
  inline Tensor name(const Tensor& x) { return x.name(); }                                           \
  inline Tensor& name##_(Tensor& x) { return x.name##_(); }
WARPSMITH_UNARY(WARPSMITH_DEFINE)
#undef WARPSMITH_DEFINE

// Operators of two tensors, or of a tensor and a number.
#define WARPSMITH_DEFINE(name)                                                                                    \
  inline Tensor Tensor::name(const Tensor& y) const { return ops::operate("aten::" #name, "Tensor", *this, y); }  \
  inline Tensor Tensor::name(const Scalar& y) const {                                                             \
    return ops::with_number(*this, y, [](const Tensor& a, const Tensor& b) { return a.name(b); });                \
  }                                                                                                               \
  inline Tensor name(const Tensor& x, const Tensor& y) { return x.name(y); }                                      \
  inline Tensor name(const Tensor& x, const Scalar& y) { return x.name(y); }
WARPSMITH_BINARY(WARPSMITH_DEFINE)
#undef WARPSMITH_DEFINE

inline Tensor Tensor::add(const Tensor& y) const { return ops::sum_of(*this, y, 1.0); }
inline Tensor Tensor::sub(const Tensor& y) const { return ops::sum_of(*this, y, -1.0); }
#define WARPSMITH_DEFINE(op, name)                                                                               \
  inline Tensor operator op(const Tensor& x, const Tensor& y) { return x.name(y); }                              \
  inline Tensor operator op(const Tensor& x, const Scalar& y) { return x.name(y); }
WARPSMITH_DEFINE(+, add)
WARPSMITH_DEFINE(-, sub)
WARPSMITH_DEFINE(*, mul)
WARPSMITH_DEFINE(/, div)
#undef WARPSMITH_DEFINE
#define WARPSMITH_DEFINE(name)                                                                                   \
  inline Tensor Tensor::name(const Scalar& y) const {                                                            \
    int kind = ops::category(scalar_type());                                                                     \
    if (kind < 2 && !y.isFloatingPoint()) { /* on the device, which an integer's sum needs */                    \
      ScalarType type = y.isBoolean() ? kBool : dim() == 0 && kind == 1 ? scalar_type() : kLong;                 \
      return name(empty({}, TensorOptions(type).device(device())).fill_(y));                                     \
    }                                                                                                            \
    return ops::with_number(*this, y, [](const Tensor& a, const Tensor& b) { return a.name(b); });               \
  }
WARPSMITH_DEFINE(add)
WARPSMITH_DEFINE(sub)
#undef WARPSMITH_DEFINE
// In place. (`add_` and `sub_` have a Scalar that the dispatcher does not take: only torch's own headers have them.)
inline Tensor& Tensor::mul_(const Scalar& y) {  // the number first, as in torch: halves would be rounded differently
  Tensor x = dim() ? *this : view({1});
  ops::operate("aten::mul", "out", ops::number_beside(*this, y), x, x);
  return *this;
}
inline Tensor& Tensor::div_(const Scalar& y) {
  (dim() ? *this : view({1})).div_(ops::number_beside(*this, y));
  return *this;
}
#define WARPSMITH_DEFINE(op, name)                                                                               \
  inline Tensor& Tensor::name(const Tensor& y) {                                                                 \
    ops::operate("aten::" #name, "Tensor", *this, y);                                                            \
    return *this;                                                                                                \
  }                                                                                                              \
  inline Tensor& Tensor::operator op(const Tensor& y) { return name(y); }                                        \
  inline Tensor& Tensor::operator op(const Scalar& y) { return name(y); }
WARPSMITH_DEFINE(*=, mul_)
WARPSMITH_DEFINE(/=, div_)
#undef WARPSMITH_DEFINE
inline Tensor operator+(const Scalar& x, const Tensor& y) { return y.add(x); }
inline Tensor operator*(const Scalar& x, const Tensor& y) { return y.mul(x); }
inline Tensor operator-(const Scalar& x, const Tensor& y) { return empty_like(y).fill_(x).sub(y); }
inline Tensor operator/(const Scalar& x, const Tensor& y) { return empty_like(y).fill_(x).div_(y); }
#define WARPSMITH_DEFINE(op, name, mirrored)                                            \
  inline Tensor operator op(const Tensor& x, const Tensor& y) { return x.name(y); }     \
  inline Tensor operator op(const Tensor& x, const Scalar& y) { return x.name(y); }     \
  inline Tensor operator op(const Scalar& x, const Tensor& y) { return y.mirrored(x); }
WARPSMITH_DEFINE(<, lt, gt)
WARPSMITH_DEFINE(>, gt, lt)
WARPSMITH_DEFINE(<=, le, ge)
WARPSMITH_DEFINE(>=, ge, le)
WARPSMITH_DEFINE(==, eq, eq)
WARPSMITH_DEFINE(!=, ne, ne)
#undef WARPSMITH_DEFINE
inline Tensor Tensor::operator-() const { return neg(); }
template <class Y> Tensor add(const Tensor& x, const Y& y) { return x.add(y); }
template <class Y> Tensor sub(const Tensor& x, const Y& y) { return x.sub(y); }
inline Tensor maximum(const Tensor& x, const Tensor& y) { return ops::operate("aten::maximum", "", x, y); }
inline Tensor minimum(const Tensor& x, const Tensor& y) { return ops::operate("aten::minimum", "", x, y); }
inline Tensor clamp_min(const Tensor& x, const Scalar& least) { return ops::with_number(x, least, maximum); }
inline Tensor clamp_max(const Tensor& x, const Scalar& most) { return ops::with_number(x, most, minimum); }
inline Tensor where(const Tensor& which, const Tensor& x, const Tensor& y) {
  return ops::operate("aten::where", "self", which, x, y);
}

// Matrices and convolutions.
inline Tensor Tensor::matmul(const Tensor& y) const { return ops::operate("aten::matmul", "", *this, y); }
inline Tensor Tensor::mm(const Tensor& y) const { return ops::operate("aten::mm", "", *this, y); }
inline Tensor Tensor::bmm(const Tensor& y) const { return ops::operate("aten::bmm", "", *this, y); }
inline Tensor matmul(const Tensor& x, const Tensor& y) { return x.matmul(y); }
inline Tensor mm(const Tensor& x, const Tensor& y) { return x.mm(y); }
inline Tensor bmm(const Tensor& x, const Tensor& y) { return x.bmm(y); }
inline Tensor linear(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias = {}) {
  return ops::operate("aten::linear", "", x, weight, bias);
}
#define WARPSMITH_DEFINE(name)                                                                                       \
  inline Tensor name(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias = {},                  \
                     IntArrayRef stride = 1, IntArrayRef padding = 0, IntArrayRef dilation = 1, int64_t groups = 1) { \
    return ops::operate("aten::" #name, "", x, weight, bias, stride, padding, dilation, groups);                     \
  }
WARPSMITH_DEFINE(conv1d)
WARPSMITH_DEFINE(conv2d)
WARPSMITH_DEFINE(conv3d)
#undef WARPSMITH_DEFINE

// Reductions and scans.
using MaybeType = std::optional<ScalarType>;
#define WARPSMITH_DEFINE(name, overload)                                                                    \
  inline Tensor Tensor::name(MaybeType type) const { return ops::operate("aten::" #name, "", *this, type); } \
  inline Tensor Tensor::name(IntArrayRef dims, bool keepdim, MaybeType type) const {                        \
    return ops::operate("aten::" #name, overload, *this, std::optional<IntArrayRef>(dims), keepdim, type);  \
  }                                                                                                         \
  inline Tensor name(const Tensor& x, MaybeType type = {}) { return x.name(type); }                         \
  inline Tensor name(const Tensor& x, IntArrayRef dims, bool keepdim = false, MaybeType type = {}) {        \
    return x.name(dims, keepdim, type);                                                                     \
  }
WARPSMITH_DEFINE(sum, "dim_IntList")
WARPSMITH_DEFINE(mean, "dim")
#undef WARPSMITH_DEFINE
#define WARPSMITH_DEFINE(name)                                                                           \
  inline Tensor Tensor::name() const { return ops::operate("aten::" #name, "", *this); }                 \
  inline std::tuple<Tensor, Tensor> Tensor::name(int64_t dim, bool keepdim) const {                      \
    return ops::operate_twofold("aten::" #name, "dim", *this, dim, keepdim);                             \
  }                                                                                                      \
  inline Tensor Tensor::a##name(IntArrayRef dims, bool keepdim) const {                                  \
    return ops::operate("aten::a" #name, "", *this, dims, keepdim);                                      \
  }                                                                                                      \
  inline Tensor Tensor::arg##name(std::optional<int64_t> dim, bool keepdim) const {                      \
    return ops::operate("aten::arg" #name, "", *this, dim, keepdim);                                     \
  }                                                                                                      \
  inline Tensor name(const Tensor& x) { return x.name(); }                                               \
  inline std::tuple<Tensor, Tensor> name(const Tensor& x, int64_t dim, bool keepdim = false) {           \
    return x.name(dim, keepdim);                                                                         \
  }                                                                                                      \
  inline Tensor a##name(const Tensor& x, IntArrayRef dims = {}, bool keepdim = false) {                  \
    return x.a##name(dims, keepdim);                                                                     \
  }                                                                                                      \
  inline Tensor arg##name(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false) {      \
    return x.arg##name(dim, keepdim);                                                                    \
  }
WARPSMITH_DEFINE(max)
WARPSMITH_DEFINE(min)
#undef WARPSMITH_DEFINE
#define WARPSMITH_DEFINE(name, overload)                                            \
  inline Tensor Tensor::name(int64_t dim, MaybeType type) const {                   \
    return ops::operate("aten::" #name, overload, *this, dim, type);                \
  }                                                                                 \
  inline Tensor name(const Tensor& x, int64_t dim, MaybeType type = {}) { return x.name(dim, type); }
WARPSMITH_DEFINE(softmax, "int")
WARPSMITH_DEFINE(log_softmax, "int")
WARPSMITH_DEFINE(cumsum, "")
WARPSMITH_DEFINE(cumprod, "")
#undef WARPSMITH_DEFINE

// Shapes.
inline Tensor Tensor::view(IntArrayRef sizes) const { return ops::operate("aten::view", "", *this, sizes); }
inline Tensor Tensor::reshape(IntArrayRef sizes) const { return ops::operate("aten::reshape", "", *this, sizes); }
inline Tensor Tensor::permute(IntArrayRef dims) const { return ops::operate("aten::permute", "", *this, dims); }
inline Tensor Tensor::expand(IntArrayRef sizes) const { return ops::operate("aten::expand", "", *this, sizes, false); }
inline Tensor Tensor::flip(IntArrayRef dims) const { return ops::operate("aten::flip", "", *this, dims); }
inline Tensor Tensor::transpose(int64_t a, int64_t b) const { return ops::operate("aten::transpose", "int", *this, a, b); }
inline Tensor Tensor::t() const { return ops::operate("aten::t", "", *this); }
inline Tensor Tensor::detach() const { return ops::operate("aten::detach", "", *this); }
inline Tensor Tensor::unsqueeze(int64_t dim) const { return ops::operate("aten::unsqueeze", "", *this, dim); }
inline Tensor Tensor::squeeze() const { return ops::operate("aten::squeeze", "", *this); }
inline Tensor Tensor::squeeze(int64_t dim) const { return ops::operate("aten::squeeze", "dim", *this, dim); }
inline Tensor Tensor::flatten(int64_t first, int64_t last) const {
  return ops::operate("aten::flatten", "using_ints", *this, first, last);
}
inline Tensor Tensor::select(int64_t dim, int64_t index) const {
  return ops::operate("aten::select", "int", *this, dim, index);
}
inline Tensor Tensor::narrow(int64_t dim, int64_t start, int64_t length) const {
  return ops::operate("aten::narrow", "", *this, dim, start, length);
}
inline Tensor Tensor::slice(int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end, int64_t step) const {
  return ops::operate("aten::slice", "Tensor", *this, dim, start, end, step);
}
inline Tensor Tensor::index_select(int64_t dim, const Tensor& index) const {
  return ops::operate("aten::index_select", "", *this, dim, index);
}
inline Tensor Tensor::operator[](int64_t index) const { return select(0, index); }
inline Tensor flip(const Tensor& x, IntArrayRef dims) { return x.flip(dims); }
inline Tensor reshape(const Tensor& x, IntArrayRef sizes) { return x.reshape(sizes); }
inline Tensor transpose(const Tensor& x, int64_t a, int64_t b) { return x.transpose(a, b); }
inline Tensor unsqueeze(const Tensor& x, int64_t dim) { return x.unsqueeze(dim); }
inline Tensor cat(ArrayRef<Tensor> tensors, int64_t dim = 0) { return ops::operate("aten::cat", "", tensors, dim); }
inline Tensor stack(ArrayRef<Tensor> tensors, int64_t dim = 0) { return ops::operate("aten::stack", "", tensors, dim); }
inline Tensor constant_pad_nd(const Tensor& x, IntArrayRef pad, const Scalar& value = 0) {
  AtenTensorHandle made = nullptr;
  double number = value.to<double>();
  c10::check(aoti_torch_aten_pad(x.handle(), pad.data(), static_cast<int64_t>(pad.size()), "constant", &number, &made));
  return Tensor(made);
}

// Types, devices and memory.
inline Tensor Tensor::to(TensorOptions options, bool non_blocking, bool copy) const {
  ScalarType type = options.has_dtype() ? options.dtype().toScalarType() : scalar_type();
  Device target = options.has_device() ? options.device() : device();
  bool same = target.type() == device().type() && (!target.has_index() || target.index() == get_device());
  if (!copy && same && type == scalar_type()) return *this;
  return ops::operate("aten::_to_copy", "", *this, std::optional<ScalarType>(type), ops::kNothing,
                      std::optional<Device>(same ? device() : target), ops::kNothing, non_blocking, ops::kNothing);
}
inline Tensor Tensor::to(Device target, ScalarType type, bool non_blocking, bool copy) const {
  return to(TensorOptions(type).device(target), non_blocking, copy);
}
inline Tensor Tensor::contiguous(MemoryFormat format) const {
  return is_contiguous(format) ? *this : ops::operate("aten::contiguous", "", *this, format);
}
inline Tensor& Tensor::fill_(const Scalar& value) {
  double real = value.to<double>();
  if (value.isFloatingPoint() || std::abs(real) < 9e15) c10::check(aoti_torch_aten_fill__Scalar(handle_, real));
  else ops::operate("aten::fill_", "Tensor", *this, ops::tensor_of(value));
  return *this;
}
template <class T> T Tensor::item() const {
  TORCH_CHECK(numel() == 1, "a Tensor with ", numel(), " elements cannot be converted to Scalar");
  Tensor one = cpu().to(is_floating_point() ? kDouble : kLong);
  if (is_floating_point()) return ops::converted<T>(*one.data_ptr<double>());
  return ops::converted<T>(*one.data_ptr<int64_t>());
}
inline Tensor empty_like_strided(const Tensor& other, TensorOptions options) {
  return ops::operate("aten::empty_like", "", other, std::optional<ScalarType>(options.dtype().toScalarType()),
                      ops::kNothing, std::optional<Device>(options.device()), ops::kNothing, ops::kNothing);
}
inline Tensor full(IntArrayRef sizes, const Scalar& value, TensorOptions options = {}) {
  ScalarType type = value.isFloatingPoint() ? c10::default_type() : value.isBoolean() ? kBool : kLong;
  return empty(sizes, options.has_dtype() ? options : options.dtype(type)).fill_(value);
}
inline Tensor ones(IntArrayRef sizes, TensorOptions options = {}) { return empty(sizes, options).fill_(1); }
inline Tensor ones_like(const Tensor& x) { return empty_like(x).fill_(1); }
inline Tensor full_like(const Tensor& x, const Scalar& value) { return empty_like(x).fill_(value); }
}  // namespace at
