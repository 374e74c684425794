# expect: faster
# analysis: Each elementwise operator allocates and writes a new tensor.
# design: Work in place on the output of the convolution.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=kernel_size // 2, bias=False)
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1))
        self.scale = nn.Parameter(torch.randn(out_channels, 1, 1))

    def forward(self, x):
        y = self.conv(x).add_(self.bias).mul_(self.scale)
        gate = (y + 3.0).clamp_(0.0, 6.0)
        return y.mul_(gate).div_(6.0)
