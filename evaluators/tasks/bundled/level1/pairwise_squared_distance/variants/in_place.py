# expect: faster
# analysis: The reference builds a large tensor of all differences.
# design: Square the differences in place.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, y):
        difference = x.unsqueeze(1) - y.unsqueeze(0)
        return difference.square_().sum(dim=-1)
