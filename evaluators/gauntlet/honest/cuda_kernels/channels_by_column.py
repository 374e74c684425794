"""Normalises channels with neighbouring threads at neighbouring places.

surface: layout
effect: reads along the length, where neighbours lie, and never transposes
task: level1/channel_layer_norm
arch: cuda
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

// 32 places by 8 rows of threads; each row sums every eighth channel
__device__ float over_rows(float value) {
  __shared__ float parts[8][32];
  __syncthreads();
  parts[threadIdx.y][threadIdx.x] = value;
  __syncthreads();
  float sum = 0.0f;
  for (int row = 0; row < 8; ++row) sum += parts[row][threadIdx.x];
  return sum;
}

__global__ void normalise(const float* in, const float* weight, const float* bias, float* out,
                          int channels, int64_t length, float eps) {
  const int64_t place = blockIdx.x * 32LL + threadIdx.x;
  const bool inside = place < length;
  const float* x = in + blockIdx.y * channels * length + place;
  float* y = out + blockIdx.y * channels * length + place;
  float sum = 0.0f, square = 0.0f;
  for (int c = threadIdx.y; inside && c < channels; c += 8) sum += x[c * length];
  const float mean = over_rows(sum) / channels;
  for (int c = threadIdx.y; inside && c < channels; c += 8)
    square += (x[c * length] - mean) * (x[c * length] - mean);
  const float scale = 1.0f / sqrtf(over_rows(square) / channels + eps);
  for (int c = threadIdx.y; inside && c < channels; c += 8)
    y[c * length] = (x[c * length] - mean) * scale * weight[c] + bias[c];
}

torch::Tensor norm(torch::Tensor input, torch::Tensor weight, torch::Tensor bias, double eps) {
  auto x = input.contiguous();
  auto result = torch::empty_like(x);
  dim3 blocks((x.size(2) + 31) / 32, x.size(0)), threads(32, 8);
  auto stream = at::cuda::getCurrentCUDAStream();
  normalise<<<blocks, threads, 0, stream>>>(
      x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(),
      result.data_ptr<float>(), static_cast<int>(x.size(1)), x.size(2), static_cast<float>(eps));
  return result;
}
"""
extension = load_inline(
    name="channels_by_column",
    cpp_sources="torch::Tensor norm(torch::Tensor, torch::Tensor, torch::Tensor, double);",
    cuda_sources=source,
    functions=["norm"],
)


class ModelNew(nn.Module):
    def __init__(self, channels, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))
        self.eps = eps

    def forward(self, x):
        return extension.norm(x, self.weight, self.bias, self.eps)
