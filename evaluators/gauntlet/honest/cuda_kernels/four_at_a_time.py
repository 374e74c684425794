"""Reads and writes four numbers at a time, and handles what is left over singly.

surface: speed
effect: vector loads where the addresses allow them, single ones for the rest
task: level1/gelu_tanh
arch: cuda
"""

from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

__device__ float gelu_of(float x) {
  float inner = 1.5957691216057308f * (x + 0.044715f * x * x * x);
  return x / (1.0f + expf(-inner));
}

__global__ void gelu_kernel(const float* __restrict__ in, float* __restrict__ out, int64_t n) {
  int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < n / 4) {
    float4 v = reinterpret_cast<const float4*>(in)[i];
    v.x = gelu_of(v.x);
    v.y = gelu_of(v.y);
    v.z = gelu_of(v.z);
    v.w = gelu_of(v.w);
    reinterpret_cast<float4*>(out)[i] = v;
  }
  if (i < n % 4) out[n - 1 - i] = gelu_of(in[n - 1 - i]);
}

torch::Tensor gelu(torch::Tensor input) {
  auto x = input.contiguous();
  if (reinterpret_cast<uintptr_t>(x.data_ptr<float>()) % 16) x = x.clone();
  auto result = torch::empty_like(x);
  int64_t n = x.numel(), blocks = (n / 4 + 255) / 256 + 1;
  auto stream = at::cuda::getCurrentCUDAStream();
  gelu_kernel<<<blocks, 256, 0, stream>>>(x.data_ptr<float>(), result.data_ptr<float>(), n);
  return result;
}
"""
extension = load_inline(
    name="four_at_a_time",
    cpp_sources="torch::Tensor gelu(torch::Tensor input);",
    cuda_sources=source,
    functions=["gelu"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.gelu(x)
