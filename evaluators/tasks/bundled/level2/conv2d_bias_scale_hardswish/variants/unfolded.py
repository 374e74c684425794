# expect: same
# analysis: Bias, scale and hard-swish make seven passes over the output.
# design: Unfold the input and fold the scale into a matmul.
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
        columns = F.unfold(x, self.conv.kernel_size, padding=self.conv.padding)
        weight = self.conv.weight.flatten(1) * self.scale.flatten(1)
        y = torch.matmul(weight, columns).add_((self.bias * self.scale).flatten(1))
        return F.hardswish(y, inplace=True).view(x.size(0), -1, x.size(2), x.size(3))
