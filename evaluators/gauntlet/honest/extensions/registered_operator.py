"""Registers an operator with torch's dispatcher under a name of its own.

surface: process
effect: adds an operator of its own and replaces none
task: level2/linear_sum_sigmoid_gate
arch: cpu cuda
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/library.h>
#include <ATen/ATen.h>

at::Tensor sum_gate(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                    double temperature) {
  auto total = at::mv(x, weight.sum(0)) + bias.sum();
  return x * at::sigmoid(total / temperature).unsqueeze(1);
}

TORCH_LIBRARY(row_gates, library) {
  library.def("sum_gate(Tensor x, Tensor weight, Tensor bias, float temperature) -> Tensor");
  library.impl("sum_gate", c10::DispatchKey::CompositeImplicitAutograd, sum_gate);
}
"""
load_inline(name="registered_operator", cpp_sources=source, is_python_module=False)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, temperature):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.temperature = float(temperature)

    def forward(self, x):
        weight, bias = self.linear.weight, self.linear.bias
        return torch.ops.row_gates.sum_gate(x, weight, bias, self.temperature)
