"""Scales rows instead of multiplying by a diagonal matrix, which is many times faster.

surface: speed
effect: holds for every input: a diagonal product only scales rows
task: level1/diagonal_matmul
arch: cpu cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, diagonal, a, b):
        # diag(d) @ (a @ b) == (d * a) @ b, and the factor on the left is the smallest of the three.
        return torch.matmul(diagonal.unsqueeze(1) * a, b)
