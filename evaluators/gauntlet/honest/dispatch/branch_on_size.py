"""Chooses between two formulas by the sizes of its inputs, and has one for empty ones.

surface: task
effect: both branches are right for every size
task: level1/pairwise_squared_distance
arch: cpu cuda
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        rows, columns = x.shape[0], y.shape[0]
        if rows == 0 or columns == 0:
            return x.new_empty(rows, columns)
        if rows * columns * x.shape[1] < 1 << 14:
            return (x.unsqueeze(1) - y.unsqueeze(0)).square_().sum(dim=-1)
        squares = y.square().sum(dim=1) + x.square().sum(dim=1, keepdim=True)
        return squares.addmm_(x, y.t(), alpha=-2)
