# expect: slower
# analysis: The batched products handle many small matrices.
# design: Loop over the batch with plain matrix products.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, size))

    def forward(self, d, u, v, x):
        out = torch.empty_like(x)
        for i in range(x.size(0)):
            scaled = torch.diag(d[i]) @ self.weight
            y = scaled @ x[i] + torch.outer(u[i], v[i]) @ x[i]
            out[i] = torch.relu(y)
        return out
