"""Leaves out the last mask, since a product of lower triangular matrices is lower triangular.

surface: task
effect: holds for every input: the product of lower triangles has no upper one
task: level1/triangular_matmul
arch: cpu cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        # Every term above the diagonal has a factor that is exactly zero.
        return torch.matmul(torch.tril(a), torch.tril(b))
