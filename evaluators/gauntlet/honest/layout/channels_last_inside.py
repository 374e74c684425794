"""Works channels-last inside and returns the layout that the reference returns.

surface: layout
effect: the output is made contiguous, as the reference's is
task: level2/depthwise_conv2d_silu_residual
arch: cpu cuda
"""

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

    def forward(self, x):
        last = x.contiguous(memory_format=torch.channels_last)
        weight = self.weight.contiguous(memory_format=torch.channels_last)
        y = F.conv2d(last, weight, self.bias, padding=self.padding, groups=x.size(1))
        return torch.add(x, F.silu(y).contiguous())
