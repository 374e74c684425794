"""Folds scale and bias into the convolution at every call, and names the activation.

surface: weights
effect: holds for every input: the scale of a channel is folded into its kernel
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

    def forward(self, x):
        weight = self.conv.weight * self.scale.unsqueeze(1)
        bias = (self.bias * self.scale).flatten()
        return F.hardswish(F.conv2d(x, weight, bias, padding=self.conv.padding))
