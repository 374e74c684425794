# expect: faster
# analysis: The reference multiplies by a dense matrix that is almost all zeros.
# design: Multiply by the diagonal matrix first, where the other side is small.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, diagonal, a, b):
        scaled = torch.matmul(torch.diag(diagonal), a)
        return torch.matmul(scaled, b)
