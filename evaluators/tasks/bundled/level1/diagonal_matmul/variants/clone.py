# expect: faster
# analysis: The reference multiplies a dense matrix that is almost all zeros.
# design: Copy the matrix and scale its rows in place.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, diagonal, x):
        result = x.clone()
        return result.mul_(diagonal.unsqueeze(1))
