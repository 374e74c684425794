# expect: slower
# analysis: The reference convolves with a dense weight that is mostly zeros.
# design: Call one small convolution for each channel.
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, kernel_size))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        padded = F.pad(x, (self.weight.shape[2] - 1, 0))
        channels = []
        for index in range(x.shape[1]):
            part = slice(index, index + 1)
            channels.append(F.conv1d(padded[:, part], self.weight[part], self.bias[part]))
        return torch.cat(channels, dim=1)
