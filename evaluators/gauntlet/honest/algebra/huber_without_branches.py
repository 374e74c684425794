"""Writes both branches of the Huber loss and both weights as products without a mask.

surface: comparison
effect: holds for every input: one product of a clamped size is both branches
task: level1/quantile_huber_loss
arch: cpu cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, delta):
        super().__init__()
        self.delta = delta

    def forward(self, prediction, target):
        quantiles = prediction.shape[1]
        level = (torch.arange(quantiles, device=target.device) + 0.5) / quantiles
        error = target.unsqueeze(1) - prediction.unsqueeze(2)
        # c (|e| - c / 2) for c = min(|e|, delta): for the positive errors, then for the others.
        above = error.clamp(min=0)
        below = error.neg_().clamp_(min=0)
        sums = []
        for size in (above, below):
            inner = size.clamp(max=self.delta)
            sums.append(inner.mul_(size.sub_(inner, alpha=0.5)).sum(dim=2).mean(dim=0))
        return torch.mean(sums[0] * level + sums[1] * (1 - level)) / target.shape[1]
