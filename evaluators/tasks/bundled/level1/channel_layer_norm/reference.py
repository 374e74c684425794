import torch
import torch.nn as nn

batch_size = 64
channels = 512
length = 4096
eps = 1e-5


class Model(nn.Module):
    """Layer normalisation over the channels, the second dimension, with weight and bias."""

    def __init__(self, channels, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))
        self.eps = eps

    def forward(self, x):
        rows = x.transpose(1, 2).contiguous()
        mean = rows.mean(dim=-1, keepdim=True)
        variance = ((rows - mean) ** 2).mean(dim=-1, keepdim=True)
        normalised = (rows - mean) / torch.sqrt(variance + self.eps)
        return (normalised * self.weight + self.bias).transpose(1, 2).contiguous()


def get_inputs():
    return [torch.randn(batch_size, channels, length)]


def get_init_inputs():
    return [channels, eps]
