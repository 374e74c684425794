"""Subtracts means by a product with a constant matrix, kept for each number of rows.

surface: memory
effect: a cached constant matrix that subtracts means
task: level2/batched_matmul_double_centering
arch: cpu cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.matrices = {}

    def matrix(self, rows, like):
        key = (rows, like.dtype, like.device)
        if key not in self.matrices:
            identity = torch.eye(rows, dtype=like.dtype, device=like.device)
            self.matrices[key] = identity - 1.0 / rows
        return self.matrices[key]

    def forward(self, a, b):
        left = torch.matmul(self.matrix(a.size(1), a), a)
        right = torch.matmul(self.matrix(b.size(1), b), b)
        scaled = torch.bmm(left, right.transpose(1, 2)).mul_(self.scale)
        return scaled.div_(scaled.abs().add_(1.0))
