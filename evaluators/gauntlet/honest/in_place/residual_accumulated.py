"""Adds every residual block onto a running sum, the first time out of place.

surface: inputs
effect: the running sum starts as a new tensor, so the input stays as it is
task: level3/residual_mlp
arch: cpu cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, hidden, depth):
        super().__init__()
        self.norm = nn.ModuleList([nn.LayerNorm(features) for _ in range(depth)])
        self.up = nn.ModuleList([nn.Linear(features, hidden) for _ in range(depth)])
        self.down = nn.ModuleList([nn.Linear(hidden, features) for _ in range(depth)])

    def forward(self, x):
        total = None
        for norm, up, down in zip(self.norm, self.up, self.down):
            current = x if total is None else total
            y = F.gelu(up(norm(current)), approximate="tanh")
            if total is None:
                total = torch.addmm(x, y, down.weight.t())
            else:
                total.addmm_(y, down.weight.t())
            total += down.bias
        return x.clone() if total is None else total
