# expect: faster
# analysis: A python loop launches one small convolution per channel.
# design: Add one shifted and weighted input per tap.
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
        height, width = x.shape[2:]
        padded = F.pad(x, (self.padding,) * 4)
        y = self.bias.view(-1, 1, 1).repeat(x.size(0), 1, height, width)
        for i in range(self.weight.size(2)):
            for j in range(self.weight.size(3)):
                tap = self.weight[:, :, i, j].unsqueeze(2)
                y.addcmul_(padded[:, :, i : i + height, j : j + width], tap)
        return F.silu(y, inplace=True).add_(x)
