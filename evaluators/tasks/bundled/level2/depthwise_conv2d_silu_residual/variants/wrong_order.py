# expect: wrong
# analysis: A python loop launches one small convolution per channel.
# design: Use one grouped convolution, add the residual, then SiLU.
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
        y = F.conv2d(x, self.weight, self.bias, padding=self.padding, groups=x.size(1))
        return F.silu(y.add_(x), inplace=True)
