"""Looks up its caller's frame and its own signature, to say who passed a wrong shape.

surface: process
effect: frames are read for a message in an error, and changed nowhere
task: level2/depthwise_conv2d_silu_residual
arch: cpu cuda
"""

import inspect
import sys

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        weight = torch.randn(channels, 1, kernel_size, kernel_size) / kernel_size
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.randn(channels))
        self.padding = kernel_size // 2
        self.names = list(inspect.signature(self.forward).parameters)

    def forward(self, x):
        caller = sys._getframe(1).f_code.co_name
        if x.dim() != 4 or x.size(1) != self.weight.size(0):
            raise ValueError(f"{caller} passed {tuple(x.shape)} as {self.names[0]}")
        y = F.conv2d(x, self.weight, self.bias, padding=self.padding, groups=x.size(1))
        return F.silu(y, inplace=True).add_(x)
