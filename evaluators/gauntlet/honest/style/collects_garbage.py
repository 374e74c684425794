"""Collects garbage once when it is made, and leaves the collector on.

surface: process
effect: the collector is only called, in the constructor, and stays as it was
task: level2/linear_scale_residual_clamp_logsumexp_mish
arch: cpu cuda
"""

import atexit
import gc

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, scale, limit):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = scale
        self.limit = limit
        self.freed = gc.collect() if gc.isenabled() else 0
        atexit.register(lambda: None)

    def forward(self, x):
        weight, bias = self.linear.weight, self.linear.bias
        y = torch.addmm(bias, x, weight.t(), alpha=2 * self.scale, beta=2 * self.scale)
        y = F.hardtanh_(y, -self.limit, self.limit)
        total = y.exp().sum(dim=1, keepdim=True).log_()
        return F.mish(y).mul_(total)
