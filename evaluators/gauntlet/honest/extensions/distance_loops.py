"""Computes distances directly, one column of y after the other.

surface: speed
effect: every difference is computed, in an order that the compiler vectorises
task: level1/pairwise_squared_distance
arch: cpu
"""

from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>

torch::Tensor distances(torch::Tensor x, torch::Tensor columns) {
  int64_t rows = x.size(0), dim = x.size(1), n = columns.size(1);
  auto result = torch::zeros({rows, n}, x.options());
  const float *a = x.data_ptr<float>(), *b = columns.data_ptr<float>();
  for (int64_t i = 0; i < rows; ++i) {
    float* __restrict__ out = result.data_ptr<float>() + i * n;
    for (int64_t k = 0; k < dim; ++k) {
      const float value = a[i * dim + k];
      const float* __restrict__ other = b + k * n;
      for (int64_t j = 0; j < n; ++j) {
        const float difference = value - other[j];
        out[j] += difference * difference;
      }
    }
  }
  return result;
}
"""
extension = load_inline(
    name="distance_loops",
    cpp_sources=source,
    functions=["distances"],
    extra_cflags=["-O3", "-march=native"],
)


class ModelNew(nn.Module):
    def forward(self, x, y):
        return extension.distances(x.contiguous(), y.t().contiguous())
