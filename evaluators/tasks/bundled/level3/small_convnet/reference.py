import torch
import torch.nn as nn


class Model(nn.Module):
    """A small image classifier: convolution, pooled pointwise layers, global average, linear head."""

    def __init__(self, in_channels, channels, classes):
        super().__init__()
        self.stem = nn.Conv2d(in_channels, channels, 3, padding=1)
        self.expand = nn.Conv2d(channels, 4 * channels, 1)
        self.mix = nn.Conv2d(4 * channels, 4 * channels, 1)
        self.head = nn.Linear(4 * channels, classes)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        x = nn.functional.avg_pool2d(self.expand(x), 2)
        x = torch.relu(x)
        x = self.mix(x)
        x = x.mean(dim=3).mean(dim=2)
        return self.head(x)


batch_size = 128
in_channels = 3
channels = 32
size = 128
classes = 100


def get_inputs():
    return [torch.randn(batch_size, in_channels, size, size)]


def get_init_inputs():
    return [in_channels, channels, classes]
