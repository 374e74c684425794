"""Computes an activation by at::parallel_for, within torch's number of threads.

surface: process
effect: threads of torch's own pool, joined before the function returns
task: level1/gelu_tanh
arch: cpu
"""

from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <ATen/Parallel.h>
#include <cmath>

torch::Tensor gelu(torch::Tensor input) {
  auto x = input.contiguous();
  auto result = torch::empty_like(x);
  const float* in = x.data_ptr<float>();
  float* out = result.data_ptr<float>();
  at::parallel_for(0, x.numel(), 16384, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float inner = 0.7978845608f * (in[i] + 0.044715f * in[i] * in[i] * in[i]);
      out[i] = in[i] / (1.0f + std::exp(-2.0f * inner));
    }
  });
  return result;
}
"""
extension = load_inline(
    name="parallel_loop",
    cpp_sources=source,
    functions=["gelu"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.gelu(x)
