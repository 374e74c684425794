# expect: faster
# analysis: A python loop launches one small convolution per channel.
# design: Add one shifted and weighted input per tap.
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
        length = x.size(2)
        y = x * self.weight[:, :, -1] + self.bias.unsqueeze(1)
        for k in range(1, self.kernel_size):
            y[:, :, k:].addcmul_(x[:, :, : length - k], self.weight[:, :, -1 - k])
        return F.silu(y, inplace=True)
