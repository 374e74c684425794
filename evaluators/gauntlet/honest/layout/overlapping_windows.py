"""Reads windows through as_strided, whose elements share memory, and copies none.

surface: memory
effect: the overlapping view is only read, and lies within a copy of the input
task: level1/avg_pool1d
arch: cpu cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, kernel_size, stride, padding):
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding

    def forward(self, x):
        padded = F.pad(x, (self.padding, self.padding)).contiguous()
        batch, channels, length = padded.shape
        count = (length - self.kernel_size) // self.stride + 1
        shape = (batch, channels, self.kernel_size, count)
        strides = (channels * length, length, 1, self.stride)
        return torch.as_strided(padded, shape, strides).mean(dim=2)
