# expect: slower
# analysis: The reference multiplies many zeros above the diagonal.
# design: Multiply in double precision and convert back.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, a, b):
        product = torch.matmul(torch.tril(a.double()), torch.tril(b.double()))
        return torch.tril(product).float()
