"""Hides a weight that is derived from two others behind a property.

surface: weights
effect: the derived weight is computed anew whenever it is read
task: level2/conv2d_bias_scale_hardswish
arch: cpu cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        padding = kernel_size // 2
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=padding, bias=False)
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1))
        self.scale = nn.Parameter(torch.randn(out_channels, 1, 1))

    @property
    def kernel(self):
        return self.conv.weight * self.scale.unsqueeze(-1)

    @property
    def shift(self):
        return torch.mul(self.bias, self.scale).flatten()

    def forward(self, x):
        y = F.conv2d(x, self.kernel, self.shift, padding=self.conv.padding)
        return F.hardswish(y, inplace=True)
