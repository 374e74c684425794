# expect: faster
# analysis: Bias, scale and hard-swish make seven passes over the output.
# design: Fold the scale into the weight and use one fused hard-swish.
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=kernel_size // 2, bias=False)
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1))
        self.scale = nn.Parameter(torch.randn(out_channels, 1, 1))

    def forward(self, x):
        weight = self.conv.weight * self.scale.unsqueeze(1)
        bias = (self.bias * self.scale).flatten()
        y = F.conv2d(x, weight, bias, padding=self.conv.padding)
        return F.hardswish(y, inplace=True)
