# expect: slower
# analysis: Bias, scale and hard-swish make seven passes over the output.
# design: Compute eight output channels at a time and join them.
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
        channels = []
        for i in range(0, self.bias.size(0), 8):
            y = F.conv2d(x, self.conv.weight[i : i + 8], padding=self.conv.padding)
            y = (y + self.bias[i : i + 8]) * self.scale[i : i + 8]
            channels.append(F.hardswish(y))
        return torch.cat(channels, dim=1)
