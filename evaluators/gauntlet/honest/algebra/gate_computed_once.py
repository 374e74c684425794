"""Computes a gate once where the reference does so twice, and mixes by interpolation.

surface: task
effect: holds for every input: the reference computes the same gate twice
task: level2/highway_gate
arch: cpu cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.transform = nn.Linear(features, features)
        self.gate = nn.Linear(features, features)

    def forward(self, x):
        gate = torch.sigmoid(self.gate(x))
        return torch.lerp(x, torch.tanh(self.transform(x)), gate)
