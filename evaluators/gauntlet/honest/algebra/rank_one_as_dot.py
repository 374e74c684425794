"""Applies an outer product and a diagonal without ever forming a matrix of either.

surface: speed
effect: holds for every input: an outer product times a matrix is a dot product first
task: level2/diagonal_rank_one_matmul_relu
arch: cpu cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, size) / size**0.5)

    def forward(self, d, u, v, x):
        y = torch.matmul(self.weight, x) * d.unsqueeze(2)
        y += u.unsqueeze(2) * torch.bmm(v.unsqueeze(1), x)
        return torch.relu_(y)
