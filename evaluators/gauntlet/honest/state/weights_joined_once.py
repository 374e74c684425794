"""Holds two layers as one transposed weight, joined when it is constructed.

surface: weights
effect: the joined weight is the parameter itself: whoever replaces it changes what is computed
task: level2/swiglu_channels_first
arch: cpu cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        gate, value = nn.Linear(features, hidden), nn.Linear(features, hidden)
        self.kernel = nn.Parameter(torch.cat([gate.weight, value.weight]).detach().t().contiguous())
        self.offset = nn.Parameter(torch.cat([gate.bias, value.bias]).detach())

    def forward(self, x):
        rows = torch.addmm(self.offset, x.reshape(-1, x.size(2)), self.kernel)
        gate, value = rows.view(*x.shape[:2], -1).chunk(2, dim=2)
        return F.silu(gate) * value
