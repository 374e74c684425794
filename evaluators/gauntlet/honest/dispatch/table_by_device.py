"""Looks up a function by the kind of device and falls back to a general one.

surface: task
effect: each device has a path of its own, and unknown ones the reference's
task: level2/conv2d_bias_scale_hardswish
arch: cpu cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


def by_kernel(x, conv, bias, scale):
    weight = conv.weight * scale.unsqueeze(1)
    shift = (bias * scale).flatten()
    return F.hardswish(F.conv2d(x, weight, shift, padding=conv.padding), inplace=True)


def by_step(x, conv, bias, scale):
    return F.hardswish(conv(x).add_(bias).mul_(scale), inplace=True)


def general(x, conv, bias, scale):
    y = (conv(x) + bias) * scale
    return y * torch.clamp(y + 3.0, 0.0, 6.0) / 6.0


PATHS = {"cuda": by_kernel, "cpu": by_step}


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        padding = kernel_size // 2
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=padding, bias=False)
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1))
        self.scale = nn.Parameter(torch.randn(out_channels, 1, 1))

    def forward(self, x):
        return PATHS.get(x.device.type, general)(x, self.conv, self.bias, self.scale)
