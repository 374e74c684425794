"""Joins two weights at every call, so that one product serves both branches.

surface: weights
effect: weights are joined at every call, so replaced ones are respected
task: level2/swiglu_channels_first
arch: cpu cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.gate = nn.Linear(features, hidden)
        self.value = nn.Linear(features, hidden)

    def forward(self, x):
        weight = torch.cat([self.gate.weight, self.value.weight])
        bias = torch.cat([self.gate.bias, self.value.bias])
        gate, value = F.linear(x, weight, bias).chunk(2, dim=2)
        return F.silu(gate) * value
