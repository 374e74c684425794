# expect: same
# analysis: The reference builds a large tensor of all differences.
# design: Loop over the rows of x and stack the results.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, y):
        rows = []
        for row in x.unbind(0):
            rows.append((y - row).square_().sum(dim=1))
        return torch.stack(rows)
