# expect: same
# analysis: A python loop launches one small convolution per channel.
# design: Unfold the input into columns and sum the weighted taps.
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
        columns = F.unfold(x, self.weight.shape[2:], padding=self.padding)
        columns = columns.unflatten(1, (x.size(1), -1))
        y = (columns * self.weight.view(x.size(1), -1, 1)).sum(dim=2)
        y = F.silu(y + self.bias.unsqueeze(1))
        return x + y.view(x.shape)
