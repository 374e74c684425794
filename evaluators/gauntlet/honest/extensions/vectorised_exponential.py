"""Brings its own exponential, a polynomial with an error of about one unit in the last place.

surface: comparison
effect: a polynomial for exp that is as exact as the library's, for every input
task: level1/softmax
arch: cpu
"""

from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <cstring>

static inline float exponential(float x) {
  x = x < -87.0f ? -87.0f : x;
  float n = (x * 1.44269504f + 12582912.0f) - 12582912.0f;  // rounded to an integer
  float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
  float scale;
  std::memcpy(&scale, &bits, sizeof scale);
  return p * scale;
}

torch::Tensor softmax(torch::Tensor input) {
  auto x = input.contiguous();
  auto result = torch::empty_like(x);
  int64_t rows = x.size(0), n = x.size(1);
  for (int64_t row = 0; row < rows; ++row) {
    const float* in = x.data_ptr<float>() + row * n;
    float* out = result.data_ptr<float>() + row * n;
    float largest = in[0], sums[16] = {};
    for (int64_t i = 1; i < n; ++i) largest = in[i] > largest ? in[i] : largest;
    for (int64_t i = 0; i < n; ++i) out[i] = exponential(in[i] - largest);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
      for (int j = 0; j < 16; ++j) sums[j] += out[i + j];
    for (; i < n; ++i) sums[0] += out[i];
    float total = 0;
    for (float sum : sums) total += sum;
    for (int64_t j = 0; j < n; ++j) out[j] /= total;
  }
  return result;
}
"""
extension = load_inline(
    name="vectorised_exponential",
    cpp_sources=source,
    functions=["softmax"],
    extra_cflags=["-O3", "-march=native"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.softmax(x)
