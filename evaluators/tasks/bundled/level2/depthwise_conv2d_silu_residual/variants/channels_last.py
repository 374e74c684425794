# expect: faster
# analysis: A python loop launches one small convolution per channel.
# design: Use one grouped convolution with the channels last.
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, kernel_size, kernel_size))
        self.bias = nn.Parameter(torch.randn(channels))
        self.padding = kernel_size // 2

    def forward(self, x):
        y = x.contiguous(memory_format=torch.channels_last)
        y = F.conv2d(y, self.weight, self.bias, padding=self.padding, groups=x.size(1))
        return (x + F.silu(y)).contiguous()
