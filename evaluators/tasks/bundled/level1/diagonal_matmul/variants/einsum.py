# expect: faster
# analysis: The reference multiplies a dense matrix that is almost all zeros.
# design: Let einsum scale the rows, without a matmul.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, diagonal, x):
        return torch.einsum("i,ij->ij", diagonal, x)
