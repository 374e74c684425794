// torch's accessors: a tensor's elements by indices, on the host or, as arguments of kernels, on the device.
#pragma once

#include "warpsmith/tensor.h"

#if defined(__CUDACC__)
#define WARPSMITH_HOST_DEVICE __host__ __device__
#else
#define WARPSMITH_HOST_DEVICE
#endif

namespace at {
#if defined(__CUDACC__)
template <class T> struct RestrictPtrTraits { using PtrType = T* __restrict__; };
#endif

template <class T, size_t N, template <class> class Pointer = DefaultPtrTraits, class Index = int64_t>
class TensorAccessor {
 public:
  using PtrType = typename Pointer<T>::PtrType;
  WARPSMITH_HOST_DEVICE TensorAccessor(PtrType data, const Index* sizes, const Index* strides)
      : data_(data), sizes_(sizes), strides_(strides) {}
  WARPSMITH_HOST_DEVICE Index size(Index i) const { return sizes_[i]; }
  WARPSMITH_HOST_DEVICE Index stride(Index i) const { return strides_[i]; }
  WARPSMITH_HOST_DEVICE PtrType data() const { return data_; }
  WARPSMITH_HOST_DEVICE decltype(auto) operator[](Index i) const {
    if constexpr (N == 1) return (data_[strides_[0] * i]);
    else return TensorAccessor<T, N - 1, Pointer, Index>(data_ + strides_[0] * i, sizes_ + 1, strides_ + 1);
  }

 private:
  PtrType data_;
  const Index *sizes_, *strides_;
};

// Keeps sizes and strides itself, so that it can be an argument of a kernel.
template <class T, size_t N, template <class> class Pointer = DefaultPtrTraits, class Index = int64_t>
class GenericPackedTensorAccessor {
 public:
  using PtrType = typename Pointer<T>::PtrType;
  GenericPackedTensorAccessor(PtrType data, const int64_t* sizes, const int64_t* strides) : data_(data) {
    for (size_t i = 0; i < N; ++i) {
      sizes_[i] = static_cast<Index>(sizes[i]);
      strides_[i] = static_cast<Index>(strides[i]);
    }
  }
  WARPSMITH_HOST_DEVICE Index size(Index i) const { return sizes_[i]; }
  WARPSMITH_HOST_DEVICE Index stride(Index i) const { return strides_[i]; }
  WARPSMITH_HOST_DEVICE PtrType data() const { return data_; }
  WARPSMITH_HOST_DEVICE decltype(auto) operator[](Index i) const {
    return TensorAccessor<T, N, Pointer, Index>(data_, sizes_, strides_)[i];
  }

 private:
  PtrType data_;
  Index sizes_[N], strides_[N];
};
template <class T, size_t N, template <class> class Pointer = DefaultPtrTraits>
using PackedTensorAccessor32 = GenericPackedTensorAccessor<T, N, Pointer, int32_t>;
template <class T, size_t N, template <class> class Pointer = DefaultPtrTraits>
using PackedTensorAccessor64 = GenericPackedTensorAccessor<T, N, Pointer, int64_t>;

template <class T, size_t N> auto Tensor::accessor() const& {
  TORCH_CHECK(dim() == N, "TensorAccessor expected ", N, " dims but tensor has ", dim());
  return TensorAccessor<T, N>(data_ptr<T>(), sizes().data(), strides().data());
}
template <class T, size_t N, template <class> class Pointer> auto Tensor::packed_accessor32() const& {
  TORCH_CHECK(numel() <= INT32_MAX, "numel needs to be smaller than int32_t max; otherwise, please use packed_accessor64");
  TORCH_CHECK(dim() == N, "TensorAccessor expected ", N, " dims but tensor has ", dim());
  return PackedTensorAccessor32<T, N, Pointer>(data_ptr<T>(), sizes().data(), strides().data());
}
template <class T, size_t N, template <class> class Pointer> auto Tensor::packed_accessor64() const& {
  TORCH_CHECK(dim() == N, "TensorAccessor expected ", N, " dims but tensor has ", dim());
  return PackedTensorAccessor64<T, N, Pointer>(data_ptr<T>(), sizes().data(), strides().data());
}
}  // namespace at
