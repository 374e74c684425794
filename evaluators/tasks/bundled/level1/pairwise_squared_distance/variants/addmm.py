# expect: faster
# analysis: The reference builds a large tensor of all differences.
# design: Centre the rows, then add the norms inside one matmul.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, y):
        centre = y.mean(dim=0)
        x, y = x - centre, y - centre
        norms = (x * x).sum(dim=1, keepdim=True) + (y * y).sum(dim=1)
        return torch.addmm(norms, x, y.t(), alpha=-2.0).clamp_(min=0.0)
