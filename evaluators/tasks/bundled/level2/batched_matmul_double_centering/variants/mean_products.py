# expect: faster
# analysis: Three means are computed over the large score matrix.
# design: Compute the means from the averaged inputs.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, a, b):
        scores = torch.bmm(a, b.transpose(1, 2))
        mean_a = a.mean(dim=1, keepdim=True)
        mean_b = b.mean(dim=1, keepdim=True)
        row = torch.bmm(a - mean_a, mean_b.transpose(1, 2))
        column = torch.bmm(mean_a, b.transpose(1, 2))
        scaled = (scores - row - column) * self.scale
        return scaled / (1 + torch.abs(scaled))
