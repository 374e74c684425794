"""Takes two of three products out of a loop over time and does them for all steps at once.

surface: task
effect: holds for every input: only the recurrent product depends on the step before
task: level3/unrolled_recurrent_network
arch: cpu cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, hidden, outputs):
        super().__init__()
        self.input = nn.Linear(features, hidden)
        self.recurrent = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, outputs)

    def forward(self, x):
        bias = self.input.bias + self.recurrent.bias
        driven = F.linear(x, self.input.weight, bias)
        weight = self.recurrent.weight.t()
        states = torch.empty_like(driven)
        state = driven.new_zeros(x.size(0), weight.size(0))
        for t in range(x.size(1)):
            state = torch.addmm(driven[:, t], state, weight).tanh_()
            states[:, t] = state
        return self.output(states)
