"""Reuses two large scratch tensors from call to call, and never their contents.

surface: memory
effect: scratch is overwritten whole in each call; the output is a new tensor
task: level1/quantile_huber_loss
arch: cpu cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, delta):
        super().__init__()
        self.delta = delta
        self.scratch = {}

    def forward(self, prediction, target):
        shape = (*prediction.shape, target.shape[1])
        key = (shape, target.dtype, target.device)
        if key not in self.scratch:
            self.scratch = {key: (target.new_empty(shape), target.new_empty(shape))}
        size, inner = self.scratch[key]
        level = (torch.arange(shape[1], device=target.device) + 0.5) / shape[1]
        torch.sub(target.unsqueeze(1), prediction.unsqueeze(2), out=size)
        # |e| |level - [e < 0]| = max(level e, (level - 1) e), so the weight needs no mask.
        weighted = torch.maximum(size * level.unsqueeze(1), size * (level - 1).unsqueeze(1))
        size.abs_()
        torch.clamp(size, max=self.delta, out=inner)
        ratio = inner.mul_(size.sub(inner, alpha=0.5)).div_(size.clamp_(min=1e-30))
        return torch.mean(weighted.mul_(ratio))
