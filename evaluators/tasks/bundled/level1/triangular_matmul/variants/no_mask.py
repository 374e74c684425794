# expect: same
# analysis: The reference multiplies many zeros above the diagonal.
# design: Drop the last mask, because the product is already triangular.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, a, b):
        return torch.matmul(torch.tril(a), torch.tril(b))
