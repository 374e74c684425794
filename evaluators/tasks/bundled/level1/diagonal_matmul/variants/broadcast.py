# expect: faster
# analysis: The reference multiplies a dense matrix that is almost all zeros.
# design: Scale each row by broadcasting, without a matmul.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, diagonal, x):
        return diagonal.unsqueeze(1) * x
