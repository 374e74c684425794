"""Lets torch.compile fuse an activation into one loop.

surface: compiler
effect: the compiler is part of torch, and what it makes depends on the input alone
task: level1/gelu_tanh
arch: cpu cuda
"""

import math

import torch
from torch import nn


@torch.compile
def gelu(x):
    scale = 2.0 * math.sqrt(2.0 / math.pi)
    return x * torch.sigmoid(scale * (x + 0.044715 * x * x * x))


class ModelNew(nn.Module):
    def forward(self, x):
        return gelu(x)
