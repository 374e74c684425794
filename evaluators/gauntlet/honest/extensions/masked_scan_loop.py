"""Scans and masks in one C++ loop whose inner loop runs over channels.

surface: speed
effect: one pass over the input in place of three
task: level1/masked_cumsum
arch: cpu
"""

from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>

torch::Tensor scan(torch::Tensor input, torch::Tensor keep) {
  auto x = input.contiguous();
  auto mask = keep.contiguous();
  auto result = torch::empty_like(x);
  int64_t batch = x.size(0), length = x.size(1), n = x.size(2);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t t = 0; t < length; ++t) {
      int64_t row = b * length + t;
      const float* in = x.data_ptr<float>() + row * n;
      float* out = result.data_ptr<float>() + row * n;
      const float* last = out - n;
      bool kept = mask.data_ptr<bool>()[row];
      for (int64_t i = 0; i < n; ++i) {
        float value = kept ? in[i] : 0.0f;
        out[i] = t ? last[i] + value : value;
      }
    }
  return result;
}
"""
extension = load_inline(
    name="masked_scan_loop",
    cpp_sources=source,
    functions=["scan"],
    extra_cflags=["-O3", "-march=native"],
)


class ModelNew(nn.Module):
    def forward(self, x, mask):
        return extension.scan(x, mask)
