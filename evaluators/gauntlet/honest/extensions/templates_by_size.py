"""Dispatches on the window size to loops that the compiler unrolls.

surface: task
effect: a template for common window sizes, and a general loop for all others
task: level1/avg_pool1d
arch: cpu
"""

from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>

template <int Size>
void pool(const float* in, float* out, int64_t count, int64_t stride, int64_t size) {
  const int64_t n = Size ? Size : size;
  const float scale = 1.0f / n;
  for (int64_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int64_t k = 0; k < n; ++k) sum += in[i * stride + k];
    out[i] = sum * scale;
  }
}

torch::Tensor avg_pool(torch::Tensor x, int64_t size, int64_t stride, int64_t padding) {
  auto padded = torch::constant_pad_nd(x, {padding, padding}).contiguous();
  int64_t rows = x.size(0) * x.size(1), length = padded.size(2);
  int64_t count = (length - size) / stride + 1;
  auto result = torch::empty({x.size(0), x.size(1), count}, x.options());
  auto work = size == 2 ? pool<2> : size == 4 ? pool<4> : size == 8 ? pool<8> : pool<0>;
  for (int64_t row = 0; row < rows; ++row)
    work(padded.data_ptr<float>() + row * length, result.data_ptr<float>() + row * count, count,
         stride, size);
  return result;
}
"""
extension = load_inline(
    name="templates_by_size",
    cpp_sources=source,
    functions=["avg_pool"],
    extra_cflags=["-O3", "-march=native"],
)


class ModelNew(nn.Module):
    def __init__(self, kernel_size, stride, padding):
        super().__init__()
        self.arguments = (kernel_size, stride, padding)

    def forward(self, x):
        return extension.avg_pool(x, *self.arguments)
