# expect: faster
# analysis: The reference convolves with a dense weight that is mostly zeros.
# design: One grouped convolution handles all channels at once.
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
        return F.conv1d(padded, self.weight, self.bias, groups=x.shape[1])
