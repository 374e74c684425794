# expect: wrong
# analysis: The product with a diagonal matrix is a full matmul.
# design: Scale the input first, then apply the weight.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, size))

    def forward(self, d, u, v, x):
        y = torch.matmul(self.weight, x * d.unsqueeze(2))
        projected = torch.bmm(v.unsqueeze(1), x)
        return y.addcmul_(u.unsqueeze(2), projected).relu_()
