# expect: wrong
# analysis: The reference builds a large tensor of all differences.
# design: Expand the square, so that one matmul does the work.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, y):
        x_norms = (x * x).sum(dim=1, keepdim=True)
        y_norms = (y * y).sum(dim=1)
        distances = x_norms + y_norms - torch.matmul(x, y.t())
        return distances.clamp_(min=0.0)
