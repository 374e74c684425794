# expect: faster
# analysis: The reference copies every window before it averages.
# design: One C++ loop adds the shifted rows and never copies a window.
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>

torch::Tensor pool(torch::Tensor x, int64_t kernel, int64_t stride, int64_t padding) {
  auto input = torch::constant_pad_nd(x, {padding, padding}).contiguous();
  int64_t rows = input.size(0) * input.size(1), length = input.size(2);
  int64_t count = (length - kernel) / stride + 1;
  auto result = torch::empty({input.size(0), input.size(1), count}, input.options());
  const float* in = input.data_ptr<float>();
  float* out = result.data_ptr<float>();
  float scale = 1.0f / kernel;
  for (int64_t row = 0; row < rows; ++row) {
    const float* a = in + row * length;
    float* o = out + row * count;
    for (int64_t i = 0; i < count; ++i) o[i] = a[i * stride];
    for (int64_t k = 1; k < kernel; ++k)
      for (int64_t i = 0; i < count; ++i) o[i] += a[i * stride + k];
    for (int64_t i = 0; i < count; ++i) o[i] *= scale;
  }
  return result;
}
"""
extension = load_inline(
    name="avg_pool1d",
    cpp_sources=source,
    functions=["pool"],
    extra_cflags=["-O3", "-march=native"],
)


class ModelNew(nn.Module):
    def __init__(self, kernel_size, stride, padding):
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding

    def forward(self, x):
        return extension.pool(x, self.kernel_size, self.stride, self.padding)
