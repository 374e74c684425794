"""Splits a normalisation into two functions, the second of which writes into the first's result.

surface: memory
effect: one function fills a tensor that the other reads, both of this call
task: level1/channel_layer_norm
arch: cpu
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <cmath>
#include <vector>

// [samples, 2, length]: means, and one over the deviations, of all channels at a place
torch::Tensor statistics(torch::Tensor x, double eps) {
  int64_t samples = x.size(0), channels = x.size(1), length = x.size(2);
  auto result = torch::empty({samples, 2, length}, x.options());
  for (int64_t s = 0; s < samples; ++s) {
    const float* in = x.data_ptr<float>() + s * channels * length;
    float* mean = result.data_ptr<float>() + s * 2 * length;
    std::vector<double> sum(length), square(length);
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t i = 0; i < length; ++i) sum[i] += in[c * length + i];
    for (int64_t i = 0; i < length; ++i) mean[i] = static_cast<float>(sum[i] / channels);
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t i = 0; i < length; ++i) {
        double d = in[c * length + i] - mean[i];
        square[i] += d * d;
      }
    for (int64_t i = 0; i < length; ++i)
      mean[length + i] = static_cast<float>(1.0 / std::sqrt(square[i] / channels + eps));
  }
  return result;
}

void apply(torch::Tensor x, torch::Tensor found, torch::Tensor weight, torch::Tensor bias,
           torch::Tensor result) {
  int64_t samples = x.size(0), channels = x.size(1), length = x.size(2);
  const float *w = weight.data_ptr<float>(), *b = bias.data_ptr<float>();
  for (int64_t s = 0; s < samples; ++s) {
    const float* mean = found.data_ptr<float>() + s * 2 * length;
    for (int64_t c = 0; c < channels; ++c) {
      const float* in = x.data_ptr<float>() + (s * channels + c) * length;
      float* out = result.data_ptr<float>() + (s * channels + c) * length;
      for (int64_t i = 0; i < length; ++i)
        out[i] = (in[i] - mean[i]) * mean[length + i] * w[c] + b[c];
    }
  }
}
"""
extension = load_inline(
    name="several_functions",
    cpp_sources=source,
    functions=["statistics", "apply"],
    extra_cflags=["-O3", "-march=native"],
)


class ModelNew(nn.Module):
    def __init__(self, channels, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))
        self.eps = eps

    def forward(self, x):
        x = x.contiguous()
        result = torch.empty_like(x)
        extension.apply(x, extension.statistics(x, self.eps), self.weight, self.bias, result)
        return result
