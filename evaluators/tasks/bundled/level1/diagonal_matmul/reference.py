import torch
import torch.nn as nn

rows = 2048
inner = 512
columns = 4096


class Model(nn.Module):
    """Product of a diagonal matrix, given by its diagonal, and two dense matrices."""

    def __init__(self):
        super().__init__()

    def forward(self, diagonal, a, b):
        return torch.matmul(torch.diag(diagonal), torch.matmul(a, b))


def get_inputs():
    return [torch.randn(rows), torch.randn(rows, inner), torch.randn(inner, columns)]


def get_init_inputs():
    return []
