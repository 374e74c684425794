"""Gets squared distances from one matrix product rather than from all differences.

surface: speed
effect: holds for every input: the square of a difference written out
task: level1/pairwise_squared_distance
arch: cpu cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        squares_x = x.square().sum(dim=1, keepdim=True)
        squares_y = y.square().sum(dim=1)
        return torch.addmm(squares_x + squares_y, x, y.t(), alpha=-2)
