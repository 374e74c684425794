import torch
import torch.nn as nn

batch_size = 4096
dim = 8192


class Model(nn.Module):
    """Softmax over the last dimension, written out with its maximum subtracted."""

    def __init__(self):
        super().__init__()

    def forward(self, x):
        maximum = torch.max(x, dim=1, keepdim=True)[0]
        total = torch.sum(torch.exp(x - maximum), dim=1, keepdim=True)
        return torch.exp(x - maximum) / total


def get_inputs():
    return [torch.randn(batch_size, dim)]


def get_init_inputs():
    return []
