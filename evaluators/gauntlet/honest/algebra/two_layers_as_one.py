"""Multiplies the weights of the last two layers, between which nothing is nonlinear.

surface: weights
effect: holds for every input: two linear maps in a row are one
task: level3/small_convnet
arch: cpu cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, in_channels, channels, classes):
        super().__init__()
        self.stem = nn.Conv2d(in_channels, channels, 3, padding=1)
        self.expand = nn.Conv2d(channels, 4 * channels, 1)
        self.mix = nn.Conv2d(4 * channels, 4 * channels, 1)
        self.head = nn.Linear(4 * channels, classes)

    def forward(self, x):
        x = F.avg_pool2d(self.stem(x).relu_(), 2)
        x = self.expand(x).relu_().mean(dim=(2, 3))
        # Done at every call: the weights may have been replaced since the last one.
        weight = torch.mm(self.head.weight, self.mix.weight.flatten(1))
        bias = torch.mv(self.head.weight, self.mix.bias) + self.head.bias
        return F.linear(x, weight, bias)
