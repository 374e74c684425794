"""Overwrites a convolution's own output with bias, scale and activation.

surface: memory
effect: the kernel overwrites the convolution's output, which belongs to this call
task: level2/conv2d_bias_scale_hardswish
arch: cuda
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

__global__ void finish(float* y, const float* bias, const float* scale, int64_t area,
                       int channels) {
  const int64_t plane = blockIdx.x;
  const int channel = static_cast<int>(plane % channels);
  const float b = bias[channel], s = scale[channel];
  float* values = y + plane * area;
  for (int64_t i = blockIdx.y * blockDim.x + threadIdx.x; i < area; i += gridDim.y * blockDim.x) {
    const float value = (values[i] + b) * s;
    values[i] = value * fminf(fmaxf(value + 3.0f, 0.0f), 6.0f) / 6.0f;
  }
}

void activate(torch::Tensor y, torch::Tensor bias, torch::Tensor scale) {
  TORCH_CHECK(y.is_contiguous(), "channels first is expected");
  int64_t area = y.size(2) * y.size(3);
  dim3 blocks(y.size(0) * y.size(1), (area + 1023) / 1024);
  auto stream = at::cuda::getCurrentCUDAStream();
  finish<<<blocks, 256, 0, stream>>>(y.data_ptr<float>(), bias.data_ptr<float>(),
                                     scale.data_ptr<float>(), area, static_cast<int>(y.size(1)));
}
"""
extension = load_inline(
    name="activation_behind_convolution",
    cpp_sources="void activate(torch::Tensor y, torch::Tensor bias, torch::Tensor scale);",
    cuda_sources=source,
    functions=["activate"],
)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        padding = kernel_size // 2
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=padding, bias=False)
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1))
        self.scale = nn.Parameter(torch.randn(out_channels, 1, 1))

    def forward(self, x):
        y = self.conv(x).contiguous()
        extension.activate(y, self.bias.contiguous(), self.scale.contiguous())
        return y
