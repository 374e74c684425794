import torch
import torch.nn as nn


class Model(nn.Module):
    """Causal depthwise convolution, one channel at a time, then SiLU."""

    def __init__(self, channels, kernel_size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, kernel_size))
        self.bias = nn.Parameter(torch.randn(channels))
        self.kernel_size = kernel_size

    def forward(self, x):
        padded = nn.functional.pad(x, (self.kernel_size - 1, 0))
        outputs = []
        for c in range(x.size(1)):
            y = nn.functional.conv1d(padded[:, c : c + 1], self.weight[c : c + 1], self.bias[c : c + 1])
            outputs.append(y)
        y = torch.cat(outputs, dim=1)
        return y * torch.sigmoid(y)


batch_size = 16
channels = 128
length = 4096
kernel_size = 4


def get_inputs():
    return [torch.randn(batch_size, channels, length)]


def get_init_inputs():
    return [channels, kernel_size]
