# expect: faster
# analysis: A python loop launches one small convolution per channel.
# design: Build a dense kernel with the weights on its diagonal.
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
        eye = torch.eye(x.size(1), device=x.device).view(x.size(1), -1, 1, 1)
        y = F.conv2d(x, self.weight * eye, self.bias, padding=self.padding)
        return F.silu(y, inplace=True).add_(x)
