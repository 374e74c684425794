"""Compiles with max-autotune, which times kernels of its own before the first call.

surface: compiler
effect: autotuning picks among kernels by time, and all of them are right
task: level2/swiglu_channels_first
arch: cuda
"""

import torch
from torch import nn


@torch.compile(mode="max-autotune-no-cudagraphs", dynamic=False)
def gated(gate, value):
    return gate * torch.sigmoid(gate) * value


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.gate = nn.Linear(features, hidden)
        self.value = nn.Linear(features, hidden)

    def forward(self, x):
        return gated(self.gate(x), self.value(x))
