"""Normalises each group by one warp and clamps in the same kernel.

surface: speed
effect: every group is reduced in a fixed order by shuffles within a warp
task: level2/matmul_group_norm_hardtanh
arch: cuda
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

__device__ float warp_sum(float value) {
  for (int d = 16; d; d >>= 1) value += __shfl_xor_sync(0xffffffffu, value, d);
  return value;
}

__global__ void normalise(float* y, const float* gamma, const float* beta, int64_t all, int groups,
                          int size, float limit) {
  int64_t group = blockIdx.x * static_cast<int64_t>(blockDim.x / 32) + threadIdx.x / 32;
  if (group >= all) return;
  int lane = threadIdx.x % 32, first = static_cast<int>(group % groups) * size;
  float* values = y + group * size;
  float sum = 0.0f, square = 0.0f;
  for (int i = lane; i < size; i += 32) sum += values[i];
  const float mean = warp_sum(sum) / size;
  for (int i = lane; i < size; i += 32) square += (values[i] - mean) * (values[i] - mean);
  const float scale = 1.0f / sqrtf(warp_sum(square) / size + 1e-5f);
  for (int i = lane; i < size; i += 32) {
    float value = (values[i] - mean) * scale * gamma[first + i] + beta[first + i];
    // Comparisons that keep a NaN, as the reference does.
    value = value > limit ? limit : value;
    values[i] = value < -limit ? -limit : value;
  }
}

void normalise_groups(torch::Tensor y, torch::Tensor gamma, torch::Tensor beta, int64_t groups,
                      double limit) {
  int64_t all = y.size(0) * groups, size = y.size(1) / groups;
  auto stream = at::cuda::getCurrentCUDAStream();
  normalise<<<(all + 7) / 8, 256, 0, stream>>>(
      y.data_ptr<float>(), gamma.data_ptr<float>(), beta.data_ptr<float>(), all,
      static_cast<int>(groups), static_cast<int>(size), static_cast<float>(limit));
}
"""
signature = "void normalise_groups(torch::Tensor, torch::Tensor, torch::Tensor, int64_t, double);"
extension = load_inline(
    name="group_in_a_warp",
    cpp_sources=signature,
    cuda_sources=source,
    functions=["normalise_groups"],
)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, num_groups, limit):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(in_features, out_features) / in_features**0.5)
        self.gamma = nn.Parameter(torch.randn(out_features))
        self.beta = nn.Parameter(torch.randn(out_features))
        self.num_groups = num_groups
        self.limit = float(limit)

    def forward(self, x):
        y = torch.matmul(x, self.weight)
        extension.normalise_groups(y, self.gamma, self.beta, self.num_groups, self.limit)
        return y
