import torch
import torch.nn as nn


class Model(nn.Module):
    """Depthwise convolution, one channel at a time, then SiLU and a residual."""

    def __init__(self, channels, kernel_size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, kernel_size, kernel_size) / kernel_size)
        self.bias = nn.Parameter(torch.randn(channels))
        self.padding = kernel_size // 2

    def forward(self, x):
        outputs = []
        for c in range(x.size(1)):
            image = x[:, c : c + 1].contiguous()
            y = nn.functional.conv2d(image, self.weight[c : c + 1], self.bias[c : c + 1], padding=self.padding)
            outputs.append(y)
        y = torch.cat(outputs, dim=1)
        y = y * torch.sigmoid(y)
        return x + y


batch_size = 32
channels = 128
height = 64
width = 64
kernel_size = 3


def get_inputs():
    return [torch.randn(batch_size, channels, height, width)]


def get_init_inputs():
    return [channels, kernel_size]
