"""Computes the transposed product and returns it the right way round.

surface: layout
effect: the transposed result is copied into the reference's strides
task: level1/diagonal_matmul
arch: cpu cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, diagonal, a, b):
        transposed = torch.mm(b.t(), (a * diagonal.unsqueeze(1)).t())
        return transposed.t().contiguous()
