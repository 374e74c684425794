# expect: slower
# analysis: A python loop launches one small convolution per channel.
# design: Build a dense kernel with the weights on its diagonal.
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
        eye = torch.eye(x.size(1), device=x.device).unsqueeze(2)
        y = F.conv1d(padded, self.weight * eye, self.bias)
        return F.silu(y)
