# expect: faster
# analysis: The product with a diagonal matrix is a full matmul.
# design: Scale the rows and add the outer product in place.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, size))

    def forward(self, d, u, v, x):
        mixed = d.unsqueeze(2) * self.weight
        mixed.addcmul_(u.unsqueeze(2), v.unsqueeze(1))
        return torch.bmm(mixed, x).relu_()
