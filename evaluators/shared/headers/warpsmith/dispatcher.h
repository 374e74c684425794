// Calls an operator of torch by the name of its schema, over libtorch's stable dispatcher (torch 2.10 and later). The
// encoding of arguments is that of torch/csrc/stable/stableivalue_conversions.h.
#pragma once

#include "warpsmith/tensor.h"

struct StableListOpaque;
using StableListHandle = StableListOpaque*;

extern "C" {
int32_t torch_call_dispatcher(const char*, const char*, uint64_t*, uint64_t);
int32_t torch_new_list_reserve_size(size_t, StableListHandle*);
int32_t torch_list_push_back(StableListHandle, uint64_t);
}

namespace warpsmith {

constexpr uint64_t kVersion = (uint64_t{2} << 56) | (uint64_t{10} << 48);  // of the encoding: that of torch 2.10

template <class T> uint64_t bits(T value) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(uint64_t));
  uint64_t result = 0;
  std::memcpy(&result, &value, sizeof(value));
  return result;
}
inline uint64_t encoded(bool value) { return value; }
inline uint64_t encoded(int64_t value) { return bits(value); }
inline uint64_t encoded(double value) { return bits(value); }
inline uint64_t encoded(c10::ScalarType type) { return bits(static_cast<int32_t>(type)); }
inline uint64_t encoded(c10::MemoryFormat format) { return bits(static_cast<int32_t>(format)); }
inline uint64_t encoded(c10::Device device) {
  return (static_cast<uint64_t>(device.type()) << 32) | static_cast<uint32_t>(device.index());
}
inline uint64_t encoded(std::nullopt_t) { return 0; }
// A new handle, which the dispatcher takes over.
inline uint64_t encoded(const at::Tensor& tensor) {
  if (!tensor.handle()) throw c10::Error("an operator was given an undefined tensor");
  return bits(at::Tensor(tensor).release());
}
template <class T> uint64_t encoded(c10::ArrayRef<T> values) {
  StableListHandle list = nullptr;
  c10::check(torch_new_list_reserve_size(values.size(), &list));
  for (const T& value : values) c10::check(torch_list_push_back(list, encoded(value)));
  return bits(list);
}
template <class T> uint64_t encoded(const std::optional<T>& value) {
  if (!value) return 0;
  if constexpr (std::is_same_v<T, at::Tensor>)
    if (!value->handle()) return 0;
  return bits(new uint64_t(encoded(*value)));  // libtorch deletes it
}

inline at::Tensor tensor_of(uint64_t value) { return at::Tensor(reinterpret_cast<AtenTensorHandle>(value)); }

// Writes the encoded results to the beginning of `stack`.
template <class... A> void operate_into(uint64_t* stack, const char* name, const char* overload, const A&... arguments) {
  size_t count = 0;
  ((stack[count++] = encoded(arguments)), ...);
  c10::check(torch_call_dispatcher(name, overload, stack, kVersion));
}
// Takes all arguments of the schema, in order: no default is filled in.
template <class... A> at::Tensor operate(const char* name, const char* overload, const A&... arguments) {
  uint64_t stack[sizeof...(A) + 1];
  operate_into(stack, name, overload, arguments...);
  return tensor_of(stack[0]);
}
template <class... A>
std::tuple<at::Tensor, at::Tensor> operate_twofold(const char* name, const char* overload, const A&... arguments) {
  uint64_t stack[sizeof...(A) + 2];
  operate_into(stack, name, overload, arguments...);
  return {tensor_of(stack[0]), tensor_of(stack[1])};
}

}  // namespace warpsmith
