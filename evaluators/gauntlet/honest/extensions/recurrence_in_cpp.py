"""Runs the loop over time in C++, where calling an operator costs less.

surface: process
effect: the loop over time calls the same operators, from C++
task: level3/unrolled_recurrent_network
arch: cpu cuda
"""

from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>

torch::Tensor recur(torch::Tensor driven, torch::Tensor weight) {
  auto transposed = weight.t().contiguous();
  auto state = torch::zeros({driven.size(0), weight.size(0)}, driven.options());
  std::vector<torch::Tensor> states;
  for (int64_t t = 0; t < driven.size(1); ++t) {
    state = torch::tanh(driven.select(1, t) + torch::mm(state, transposed));
    states.push_back(state);
  }
  return torch::stack(states, 1);
}
"""
extension = load_inline(name="recurrence_in_cpp", cpp_sources=source, functions=["recur"])


class ModelNew(nn.Module):
    def __init__(self, features, hidden, outputs):
        super().__init__()
        self.input = nn.Linear(features, hidden)
        self.recurrent = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, outputs)

    def forward(self, x):
        driven = self.input(x) + self.recurrent.bias
        return self.output(extension.recur(driven, self.recurrent.weight))
