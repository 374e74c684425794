# expect: faster
# analysis: The reference builds a large tensor of all differences.
# design: Append the norms as columns, so that one matmul does everything.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, y):
        x_norms = (x * x).sum(dim=1, keepdim=True)
        y_norms = (y * y).sum(dim=1, keepdim=True)
        left = torch.cat([-2.0 * x, x_norms, torch.ones_like(x_norms)], dim=1)
        right = torch.cat([y, torch.ones_like(y_norms), y_norms], dim=1)
        return torch.matmul(left, right.t()).clamp_(min=0.0)
