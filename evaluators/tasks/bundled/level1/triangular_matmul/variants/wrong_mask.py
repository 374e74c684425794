# expect: wrong
# analysis: The reference multiplies many zeros above the diagonal.
# design: Mask the product once instead of masking both inputs.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, a, b):
        return torch.tril(torch.matmul(a, b))
