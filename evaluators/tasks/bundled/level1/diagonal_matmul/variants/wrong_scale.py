# expect: wrong
# analysis: The reference multiplies by a dense matrix that is almost all zeros.
# design: Scale the rows of the small left matrix, then use one matmul.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, diagonal, a, b):
        scaled = diagonal.unsqueeze(1) * a
        return torch.matmul(scaled, b).mul_(diagonal.unsqueeze(1))
