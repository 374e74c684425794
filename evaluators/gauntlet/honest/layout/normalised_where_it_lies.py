"""Normalises channels without moving them to the end and back.

surface: layout
effect: statistics run over the second dimension, where the reference transposes
task: level1/channel_layer_norm
arch: cpu cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))
        self.eps = eps

    def forward(self, x):
        centred = x - x.mean(dim=1, keepdim=True)
        variance = centred.square().mean(dim=1, keepdim=True)
        centred *= torch.rsqrt(variance + self.eps)
        return centred.mul_(self.weight.unsqueeze(1)).add_(self.bias.unsqueeze(1))
