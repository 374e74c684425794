# expect: faster
# analysis: The reference convolves with a dense weight that is mostly zeros.
# design: Add shifted slices, scaled by the weights, in place.
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, kernel_size))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        taps, length = self.weight.shape[2], x.shape[2]
        padded = F.pad(x, (taps - 1, 0))
        result = self.bias.unsqueeze(1) + padded[:, :, :length] * self.weight[:, :, 0]
        for tap in range(1, taps):
            result.addcmul_(padded[:, :, tap : tap + length], self.weight[:, :, tap])
        return result
