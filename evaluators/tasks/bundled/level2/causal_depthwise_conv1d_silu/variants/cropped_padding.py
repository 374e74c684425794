# expect: faster
# analysis: A python loop launches one small convolution per channel.
# design: Pad inside one grouped convolution and drop the tail.
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, kernel_size))
        self.bias = nn.Parameter(torch.randn(channels))
        self.kernel_size = kernel_size

    def forward(self, x):
        padding = self.kernel_size - 1
        y = F.conv1d(x, self.weight, self.bias, padding=padding, groups=x.size(1))
        return F.silu(y[:, :, : x.size(2)].contiguous())
