# expect: slower
# analysis: The reference multiplies by a dense matrix that is almost all zeros.
# design: Handle one row at a time and stack the results.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, diagonal, a, b):
        rows = []
        for scale, row in zip(diagonal.unbind(0), a.unbind(0)):
            rows.append(torch.matmul(scale * row, b))
        return torch.stack(rows)
