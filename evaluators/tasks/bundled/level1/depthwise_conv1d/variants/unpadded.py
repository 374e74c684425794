# expect: faster
# analysis: The reference convolves with a dense weight that is mostly zeros.
# design: Add shifted slices in place and skip the padding copy.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, kernel_size))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        taps, length = self.weight.shape[2], x.shape[2]
        result = torch.addcmul(self.bias.unsqueeze(1), x, self.weight[:, :, -1])
        for shift in range(1, min(taps, length)):
            scale = self.weight[:, :, taps - 1 - shift]
            result[:, :, shift:].addcmul_(x[:, :, : length - shift], scale)
        return result
