"""Convolves depthwise in a kernel whose taps are unrolled where they are few.

surface: task
effect: templates for short kernels and a loop for all others
task: level1/depthwise_conv1d
arch: cuda
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

template <int Taps>
__global__ void convolve(const float* __restrict__ in, const float* __restrict__ weight,
                         const float* __restrict__ bias, float* __restrict__ out, int64_t channels,
                         int64_t length, int taps) {
  const int64_t row = blockIdx.x, channel = row % channels;
  const int64_t i = blockIdx.y * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i >= length) return;
  const int n = Taps ? Taps : taps;
  float sum = bias[channel];
#pragma unroll
  for (int k = 0; k < n; ++k) {
    const int64_t place = i - (n - 1) + k;
    if (place >= 0) sum += weight[channel * n + k] * in[row * length + place];
  }
  out[row * length + i] = sum;
}

torch::Tensor depthwise(torch::Tensor input, torch::Tensor weight, torch::Tensor bias) {
  auto x = input.contiguous();
  auto result = torch::empty_like(x);
  int taps = weight.size(2);
  dim3 blocks(x.size(0) * x.size(1), (x.size(2) + 255) / 256);
  auto kernel = taps == 3 ? convolve<3> : taps == 4 ? convolve<4> : convolve<0>;
  auto stream = at::cuda::getCurrentCUDAStream();
  kernel<<<blocks, 256, 0, stream>>>(x.data_ptr<float>(), weight.data_ptr<float>(),
                                     bias.data_ptr<float>(), result.data_ptr<float>(), x.size(1),
                                     x.size(2), taps);
  return result;
}
"""
extension = load_inline(
    name="taps_as_template",
    cpp_sources="torch::Tensor depthwise(torch::Tensor, torch::Tensor, torch::Tensor);",
    cuda_sources=source,
    functions=["depthwise"],
)


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, kernel_size))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return extension.depthwise(x, self.weight.contiguous(), self.bias)
