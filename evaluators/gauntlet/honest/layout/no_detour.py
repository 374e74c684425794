"""Leaves out a detour through another layout that changes no value.

surface: task
effect: the two transpositions of the reference cancel
task: level2/swiglu_channels_first
arch: cpu cuda
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.gate = nn.Linear(features, hidden)
        self.value = nn.Linear(features, hidden)

    def forward(self, x):
        return F.silu(self.gate(x)) * self.value(x)
