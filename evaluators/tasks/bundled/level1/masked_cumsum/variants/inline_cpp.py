# expect: faster
# analysis: The reference scans along a strided dimension and masks in extra passes.
# design: One C++ loop masks and adds, row by row, in memory order.
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>

torch::Tensor masked_cumsum(torch::Tensor x, torch::Tensor mask) {
  auto input = x.contiguous();
  auto kept = mask.contiguous();
  auto result = torch::empty_like(input);
  int64_t batch = input.size(0), length = input.size(1), width = input.size(2);
  const float* in = input.data_ptr<float>();
  const bool* keep = kept.data_ptr<bool>();
  float* out = result.data_ptr<float>();
  for (int64_t row = 0; row < batch * length; ++row) {
    const float* a = in + row * width;
    float* o = out + row * width;
    bool first = row % length == 0;
    for (int64_t i = 0; i < width; ++i)
      o[i] = (first ? 0.0f : o[i - width]) + (keep[row] ? a[i] : 0.0f);
  }
  return result;
}
"""
extension = load_inline(
    name="masked_cumsum",
    cpp_sources=source,
    functions=["masked_cumsum"],
    extra_cflags=["-O3", "-march=native"],
)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, mask):
        return extension.masked_cumsum(x, mask)
