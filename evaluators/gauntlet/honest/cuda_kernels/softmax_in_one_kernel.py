"""Computes each row's softmax in one block, by shuffles and shared memory.

surface: speed
effect: one kernel reads a row from cache where the reference makes five passes
task: level1/softmax
arch: cuda
"""

from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

template <class Op>
__device__ float reduced(float value, Op op, float neutral) {
  __shared__ float parts[32];
  for (int d = 16; d; d >>= 1) value = op(value, __shfl_xor_sync(0xffffffffu, value, d));
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  value = threadIdx.x % 32 < blockDim.x / 32 ? parts[threadIdx.x % 32] : neutral;
  for (int d = 16; d; d >>= 1) value = op(value, __shfl_xor_sync(0xffffffffu, value, d));
  return value;
}

__global__ void softmax_rows(const float* in, float* out, int64_t n) {
  const float* x = in + blockIdx.x * n;
  float* y = out + blockIdx.x * n;
  float largest = -INFINITY, sum = 0.0f;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) largest = fmaxf(largest, x[i]);
  largest = reduced(largest, [](float a, float b) { return fmaxf(a, b); }, -INFINITY);
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += expf(x[i] - largest);
  sum = reduced(sum, [](float a, float b) { return a + b; }, 0.0f);
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) y[i] = expf(x[i] - largest) / sum;
}

torch::Tensor softmax(torch::Tensor input) {
  auto x = input.contiguous();
  auto result = torch::empty_like(x);
  auto stream = at::cuda::getCurrentCUDAStream();
  softmax_rows<<<x.size(0), 512, 0, stream>>>(x.data_ptr<float>(), result.data_ptr<float>(),
                                              x.size(1));
  return result;
}
"""
extension = load_inline(
    name="softmax_in_one_kernel",
    cpp_sources="torch::Tensor softmax(torch::Tensor input);",
    cuda_sources=source,
    functions=["softmax"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.softmax(x)
