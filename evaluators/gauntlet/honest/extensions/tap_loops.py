"""Convolves channel by channel in C++ where the reference multiplies by many zeros.

surface: task
effect: only the taps that are not zero are multiplied
task: level1/depthwise_conv1d
arch: cpu
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>

torch::Tensor convolve(torch::Tensor input, torch::Tensor weight, torch::Tensor bias) {
  auto x = input.contiguous();
  auto result = torch::empty_like(x);
  int64_t batch = x.size(0), channels = x.size(1), length = x.size(2), taps = weight.size(2);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t c = 0; c < channels; ++c) {
      const float* in = x.data_ptr<float>() + (b * channels + c) * length;
      float* out = result.data_ptr<float>() + (b * channels + c) * length;
      const float* w = weight.data_ptr<float>() + c * taps;
      for (int64_t i = 0; i < length; ++i) out[i] = bias.data_ptr<float>()[c];
      for (int64_t k = 0; k < taps; ++k) {
        int64_t back = taps - 1 - k;
        for (int64_t i = back; i < length; ++i) out[i] += w[k] * in[i - back];
      }
    }
  return result;
}
"""
extension = load_inline(
    name="tap_loops",
    cpp_sources=source,
    functions=["convolve"],
    extra_cflags=["-O3", "-march=native"],
)


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, kernel_size))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return extension.convolve(x, self.weight.contiguous(), self.bias)
