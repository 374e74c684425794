# expect: faster
# analysis: The sum of both matrices is written before the last product.
# design: Multiply each matrix with the input and add the results.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, size))

    def forward(self, d, u, v, x):
        weight = self.weight.expand(x.size(0), -1, -1)
        y = torch.bmm(torch.diag_embed(d), torch.bmm(weight, x))
        outer = torch.einsum("bi,bj->bij", u, v)
        return torch.relu(y + torch.bmm(outer, x))
