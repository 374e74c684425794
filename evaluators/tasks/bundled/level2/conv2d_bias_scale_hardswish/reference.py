import torch
import torch.nn as nn


class Model(nn.Module):
    """Convolution, bias and scale per channel, then hard-swish."""

    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=kernel_size // 2, bias=False)
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1))
        self.scale = nn.Parameter(torch.randn(out_channels, 1, 1))

    def forward(self, x):
        y = self.conv(x)
        y = y + self.bias
        y = y * self.scale
        gate = torch.clamp(torch.clamp(y + 3.0, min=0.0), max=6.0) / 6.0
        return y * gate


batch_size = 64
in_channels = 16
out_channels = 64
height = 128
width = 128
kernel_size = 3


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
