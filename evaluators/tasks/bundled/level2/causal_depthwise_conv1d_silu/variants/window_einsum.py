# expect: faster
# analysis: A python loop launches one small convolution per channel.
# design: View the padded input as windows and contract them.
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
        padded = F.pad(x, (self.kernel_size - 1, 0))
        windows = padded.unfold(2, self.kernel_size, 1)
        y = (windows * self.weight).sum(dim=3) + self.bias.unsqueeze(1)
        return F.silu(y)
