import torch
import torch.nn as nn

batch_size = 32
channels = 64
length = 8192
kernel_size = 4


class Model(nn.Module):
    """Causal depthwise convolution through a dense weight that is zero between channels."""

    def __init__(self, channels, kernel_size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, kernel_size))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        taps = [torch.diag(tap) for tap in self.weight[:, 0].unbind(1)]
        dense = torch.stack(taps, dim=2)
        padded = nn.functional.pad(x, (self.weight.shape[2] - 1, 0))
        return nn.functional.conv1d(padded, dense, self.bias)


def get_inputs():
    return [torch.randn(batch_size, channels, length)]


def get_init_inputs():
    return [channels, kernel_size]
