"""Asks for strides and contiguity to choose between a view and a copy.

surface: layout
effect: a view where the layout allows one, a copy elsewhere
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
        y = F.avg_pool2d(F.relu(self.stem(x), inplace=True), 2)
        flat = y.view(*y.shape[:2], -1) if y.is_contiguous() else y.flatten(2)
        weight = self.expand.weight.flatten(1).expand(y.size(0), -1, -1)
        expanded = torch.baddbmm(self.expand.bias.view(1, -1, 1), weight, flat).relu_()
        mean = expanded.mean(dim=2)
        return self.head(F.linear(mean, self.mix.weight.flatten(1), self.mix.bias))
