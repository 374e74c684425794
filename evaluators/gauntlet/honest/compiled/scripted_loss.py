"""Compiles a loss by TorchScript, which may fuse its operators after two calls.

surface: compiler
effect: TorchScript runs the same operators
task: level1/quantile_huber_loss
arch: cpu cuda
"""

import torch
from torch import nn


@torch.jit.script
def loss(prediction, target, level, delta: float):
    error = target.unsqueeze(1) - prediction.unsqueeze(2)
    size = torch.abs(error)
    inner = torch.clamp(size, max=delta)
    weight = torch.where(error < 0, 1.0 - level, level)
    return torch.mean(weight * inner * (size - 0.5 * inner))


class ModelNew(nn.Module):
    def __init__(self, delta):
        super().__init__()
        self.delta = delta

    def forward(self, prediction, target):
        quantiles = prediction.shape[1]
        level = (torch.arange(quantiles, device=target.device) + 0.5) / quantiles
        return loss(prediction, target, level.unsqueeze(1), float(self.delta))
