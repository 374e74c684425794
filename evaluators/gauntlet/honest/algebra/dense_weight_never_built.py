"""Replaces a dense weight of mostly zeros by a grouped convolution, a fraction of the work.

surface: task
effect: holds for every input: channels do not mix, so a grouped convolution does
task: level1/depthwise_conv1d
arch: cpu cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, kernel_size))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        padded = F.pad(x, (self.weight.shape[2] - 1, 0))
        return F.conv1d(padded, self.weight, self.bias, groups=x.shape[1])
