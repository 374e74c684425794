"""Moves both averages of a network before the pointwise layers, which then work on less.

surface: speed
effect: holds for every input: an average commutes with a pointwise convolution
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
        x = torch.relu(self.stem(x))
        x = torch.relu(self.expand(F.avg_pool2d(x, 2)))
        x = x.mean(dim=(2, 3))
        return self.head(F.linear(x, self.mix.weight.flatten(1), self.mix.bias))
