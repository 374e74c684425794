# expect: slower
# analysis: The reference convolves with a dense weight that is mostly zeros.
# design: Convolve each channel of each sample on its own.
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
        samples = []
        for sample in padded.split(1):
            rows = zip(sample.split(1, dim=1), self.weight.split(1), self.bias.split(1))
            samples.append(torch.cat([F.conv1d(row, w, b) for row, w, b in rows], dim=1))
        return torch.cat(samples, dim=0)
