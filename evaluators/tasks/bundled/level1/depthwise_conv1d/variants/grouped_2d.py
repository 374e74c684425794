# expect: faster
# analysis: The reference convolves with a dense weight that is mostly zeros.
# design: One grouped two-dimensional convolution pads and handles all channels.
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
        weight = self.weight.unsqueeze(2)
        result = F.conv2d(x.unsqueeze(2), weight, self.bias, padding=(0, taps - 1), groups=x.shape[1])
        return result[:, :, 0, :length].contiguous()
