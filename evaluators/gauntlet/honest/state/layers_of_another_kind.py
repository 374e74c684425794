"""Replaces pointwise convolutions by layers of its own with the same state_dict.

surface: weights
effect: parameters have the reference's names and shapes within other classes
task: level3/small_convnet
arch: cpu cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


class Pointwise(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        like = nn.Conv2d(inputs, outputs, 1)
        self.weight, self.bias = like.weight, like.bias

    def forward(self, x):
        weight = self.weight.flatten(1).expand(x.size(0), -1, -1)
        return torch.baddbmm(self.bias.unsqueeze(1), weight, x)


class ModelNew(nn.Module):
    def __init__(self, in_channels, channels, classes):
        super().__init__()
        self.stem = nn.Conv2d(in_channels, channels, 3, padding=1)
        self.expand = Pointwise(channels, 4 * channels)
        self.mix = Pointwise(4 * channels, 4 * channels)
        self.head = nn.Linear(4 * channels, classes)

    def forward(self, x):
        x = F.avg_pool2d(torch.relu(self.stem(x)), 2).flatten(2)
        x = torch.relu(self.expand(x)).mean(dim=2, keepdim=True)
        return self.head(self.mix(x).squeeze(2))
