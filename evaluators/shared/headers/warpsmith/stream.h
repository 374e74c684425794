// The current CUDA stream, and guards, by the names of c10/cuda and ATen/cuda.
#pragma once

#include "warpsmith/tensor.h"

#include <cuda_runtime_api.h>

#define C10_CUDA_CHECK(expression)                                                                       \
  do {                                                                                                   \
    const cudaError_t _error = (expression);                                                             \
    if (_error != cudaSuccess) throw ::c10::Error(std::string("CUDA error: ") + cudaGetErrorString(_error)); \
  } while (0)
#define AT_CUDA_CHECK(expression) C10_CUDA_CHECK(expression)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())

namespace c10::cuda {
class CUDAStream {
 public:
  explicit CUDAStream(cudaStream_t stream) : stream_(stream) {}
  operator cudaStream_t() const { return stream_; }
  cudaStream_t stream() const { return stream_; }

 private:
  cudaStream_t stream_;
};
inline CUDAStream getCurrentCUDAStream(DeviceIndex index = -1) {
  int32_t device = index;
  if (device < 0) check(aoti_torch_get_current_device_index(&device));
  void* stream = nullptr;
  check(aoti_torch_get_current_cuda_stream(device, &stream));
  return CUDAStream(static_cast<cudaStream_t>(stream));
}
// Makes a device current, and in its destructor the one before it.
class CUDAGuard {
 public:
  explicit CUDAGuard(Device device) : CUDAGuard(device.index()) {}
  explicit CUDAGuard(DeviceIndex index) {
    C10_CUDA_CHECK(cudaGetDevice(&before_));
    if (index >= 0) C10_CUDA_CHECK(cudaSetDevice(index));
  }
  CUDAGuard(const CUDAGuard&) = delete;
  CUDAGuard& operator=(const CUDAGuard&) = delete;
  ~CUDAGuard() { (void)cudaSetDevice(before_); }

 private:
  int before_ = 0;
};
class OptionalCUDAGuard {
 public:
  OptionalCUDAGuard() = default;
  explicit OptionalCUDAGuard(std::optional<Device> device) {
    if (device) guard_.emplace(*device);
  }

 private:
  std::optional<CUDAGuard> guard_;
};
}  // namespace c10::cuda

namespace at::cuda {
using c10::cuda::CUDAGuard;
using c10::cuda::CUDAStream;
using c10::cuda::getCurrentCUDAStream;
using c10::cuda::OptionalCUDAGuard;
}  // namespace at::cuda
