# expect: faster
# analysis: The reference multiplies by a dense matrix that is almost all zeros.
# design: Scale the rows of the product by broadcasting into a new tensor.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, diagonal, a, b):
        return diagonal.unsqueeze(1) * torch.matmul(a, b)
