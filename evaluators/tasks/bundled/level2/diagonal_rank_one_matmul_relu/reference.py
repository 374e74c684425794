import torch
import torch.nn as nn


class Model(nn.Module):
    """Applies a diagonally scaled weight plus an outer product to a batch of matrices, then ReLU."""

    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, size) / size**0.5)

    def forward(self, d, u, v, x):
        scaled = torch.matmul(torch.diag_embed(d), self.weight)
        outer = torch.bmm(u.unsqueeze(2), v.unsqueeze(1))
        y = torch.bmm(scaled + outer, x)
        return torch.relu(y)


batch_size = 256
size = 512
columns = 64


def get_inputs():
    vectors = [torch.randn(batch_size, size) for _ in range(3)]
    return vectors + [torch.randn(batch_size, size, columns)]


def get_init_inputs():
    return [size]
