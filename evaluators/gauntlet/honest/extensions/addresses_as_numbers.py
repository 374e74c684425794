"""Passes data_ptr() as plain numbers to C++, which reads and writes memory there.

surface: memory
effect: addresses are used within the call, while their tensors are alive
task: level2/highway_gate
arch: cpu
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>

void mix(int64_t to, int64_t gate, int64_t transformed, int64_t kept, int64_t n) {
  float* out = reinterpret_cast<float*>(to);
  const float* g = reinterpret_cast<const float*>(gate);
  const float* t = reinterpret_cast<const float*>(transformed);
  const float* x = reinterpret_cast<const float*>(kept);
  for (int64_t i = 0; i < n; ++i) out[i] = g[i] * t[i] + (1.0f - g[i]) * x[i];
}
"""
extension = load_inline(
    name="addresses_as_numbers",
    cpp_sources=source,
    functions=["mix"],
    extra_cflags=["-O3", "-march=native"],
)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.transform = nn.Linear(features, features)
        self.gate = nn.Linear(features, features)

    def forward(self, x):
        x = x.contiguous()
        tensors = (torch.empty_like(x), self.gate(x).sigmoid_(), self.transform(x).tanh_(), x)
        extension.mix(*(one.data_ptr() for one in tensors), x.numel())
        return tensors[0]
