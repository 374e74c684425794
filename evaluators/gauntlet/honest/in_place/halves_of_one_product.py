"""Applies both layers in one product and activates the two halves where they lie.

surface: memory
effect: the two halves of one product of this call are overwritten
task: level2/highway_gate
arch: cpu cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.transform = nn.Linear(features, features)
        self.gate = nn.Linear(features, features)

    def forward(self, x):
        weight = torch.cat([self.transform.weight, self.gate.weight])
        bias = torch.cat([self.transform.bias, self.gate.bias])
        transformed, gate = F.linear(x, weight, bias).chunk(2, dim=1)
        transformed.tanh_().sub_(x).mul_(gate.sigmoid_())
        return x + transformed
