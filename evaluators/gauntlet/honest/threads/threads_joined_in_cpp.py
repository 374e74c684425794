"""Starts two threads in C++ for the halves of a batch and joins them.

surface: process
effect: every thread is joined before the function returns
task: level1/masked_cumsum
arch: cpu
"""

from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <thread>

static void scan(const float* x, const bool* mask, float* out, int64_t steps, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = mask[0] ? x[i] : 0.0f;
  for (int64_t t = 1; t < steps; ++t)
    for (int64_t i = t * n; i < (t + 1) * n; ++i)
      out[i] = mask[t] ? out[i - n] + x[i] : out[i - n];
}

torch::Tensor masked_scan(torch::Tensor input, torch::Tensor keep) {
  auto x = input.contiguous();
  auto mask = keep.contiguous();
  auto result = torch::empty_like(x);
  const float* in = x.data_ptr<float>();
  const bool* kept = mask.data_ptr<bool>();
  float* out = result.data_ptr<float>();
  int64_t batch = x.size(0), steps = x.size(1), n = x.size(2);
  auto samples = [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b)
      scan(in + b * steps * n, kept + b * steps, out + b * steps * n, steps, n);
  };
  std::thread other(samples, batch / 2, batch);
  samples(0, batch / 2);
  other.join();
  return result;
}
"""
extension = load_inline(
    name="threads_joined_in_cpp",
    cpp_sources=source,
    functions=["masked_scan"],
    extra_cflags=["-O3", "-march=native", "-pthread"],
)


class ModelNew(nn.Module):
    def forward(self, x, mask):
        return extension.masked_scan(x, mask)
