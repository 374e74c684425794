"""Keeps time as the first dimension, so that each step is one contiguous block.

surface: layout
effect: states are kept by time, and the output gets the reference's strides
task: level3/unrolled_recurrent_network
arch: cpu cuda
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, hidden, outputs):
        super().__init__()
        self.input = nn.Linear(features, hidden)
        self.recurrent = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, outputs)

    def forward(self, x):
        driven = self.input(x.transpose(0, 1).contiguous()).add_(self.recurrent.bias)
        weight = self.recurrent.weight.t().contiguous()
        previous = None
        for step in driven.unbind(0):
            if previous is not None:
                step.addmm_(previous, weight)
            previous = step.tanh_()
        return self.output(driven.transpose(0, 1).contiguous())
