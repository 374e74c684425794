"""Keeps the quantile levels, which are constants, for each count that has occurred.

surface: memory
effect: a table of constants, which depends on the number of quantiles alone
task: level1/quantile_huber_loss
arch: cpu cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, delta):
        super().__init__()
        self.delta = delta
        self.levels = {}

    def forward(self, prediction, target):
        key = (prediction.shape[1], target.device)
        if key not in self.levels:
            level = (torch.arange(key[0], device=key[1]) + 0.5) / key[0]
            self.levels[key] = level.unsqueeze(1)
        error = target.unsqueeze(1) - prediction.unsqueeze(2)
        weight = (self.levels[key] - (error < 0).to(error.dtype)).abs_()
        weight *= F.huber_loss(
            prediction.unsqueeze(2).expand_as(error),
            target.unsqueeze(1).expand_as(error),
            reduction="none",
            delta=self.delta,
        )
        return weight.mean()
