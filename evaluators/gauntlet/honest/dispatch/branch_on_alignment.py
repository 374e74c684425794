"""Looks at the addresses of its tensors to decide whether wide loads are allowed.

surface: inputs
effect: addresses choose between wide and single loads; both give equal values
task: level2/swiglu_channels_first
arch: cuda
"""

from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

__device__ float gated(float g, float v) { return g / (1.0f + expf(-g)) * v; }

__global__ void wide(const float4* gate, const float4* value, float4* out, int64_t n) {
  int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i >= n) return;
  const float4 g = gate[i], v = value[i];
  out[i] = {gated(g.x, v.x), gated(g.y, v.y), gated(g.z, v.z), gated(g.w, v.w)};
}

__global__ void single(const float* gate, const float* value, float* out, int64_t n) {
  int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < n) out[i] = gated(gate[i], value[i]);
}

torch::Tensor swiglu(torch::Tensor gate, torch::Tensor value) {
  auto result = torch::empty_like(gate);
  const float *g = gate.data_ptr<float>(), *v = value.data_ptr<float>();
  float* out = result.data_ptr<float>();
  int64_t n = gate.numel();
  auto stream = at::cuda::getCurrentCUDAStream();
  auto bits = reinterpret_cast<uintptr_t>(g) | reinterpret_cast<uintptr_t>(v) |
              reinterpret_cast<uintptr_t>(out);
  if (bits % 16 == 0 && n % 4 == 0)
    wide<<<(n / 4 + 255) / 256, 256, 0, stream>>>(
        reinterpret_cast<const float4*>(g), reinterpret_cast<const float4*>(v),
        reinterpret_cast<float4*>(out), n / 4);
  else
    single<<<(n + 255) / 256, 256, 0, stream>>>(g, v, out, n);
  return result;
}
"""
extension = load_inline(
    name="branch_on_alignment",
    cpp_sources="torch::Tensor swiglu(torch::Tensor gate, torch::Tensor value);",
    cuda_sources=source,
    functions=["swiglu"],
)


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.gate = nn.Linear(features, hidden)
        self.value = nn.Linear(features, hidden)

    def forward(self, x):
        return extension.swiglu(self.gate(x).contiguous(), self.value(x).contiguous())
