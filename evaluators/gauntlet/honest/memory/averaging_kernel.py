"""Averages by a convolution whose kernel is a constant buffer outside of the state_dict.

surface: memory
effect: a constant kernel, built from the sizes at construction
task: level1/avg_pool1d
arch: cpu cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, kernel_size, stride, padding):
        super().__init__()
        kernel = torch.full((1, 1, kernel_size), 1.0 / kernel_size)
        self.register_buffer("kernel", kernel, persistent=False)
        self.stride = stride
        self.padding = padding

    def forward(self, x):
        flat = x.reshape(-1, 1, x.size(2))
        y = F.conv1d(flat, self.kernel.to(x.dtype), stride=self.stride, padding=self.padding)
        return y.view(x.size(0), x.size(1), -1)
