# expect: faster
# analysis: The passes over the large output do not stay in cache.
# design: Process sixteen rows at a time with one exponential.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, scale, limit):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.factor = 2 * scale
        self.limit = limit

    def forward(self, x):
        y = self.linear(x)
        for i in range(0, y.size(0), 16):
            rows = y[i : i + 16]
            rows.mul_(self.factor).clamp_(-self.limit, self.limit)
            e = rows.exp()
            total = e.sum(dim=1, keepdim=True).log_()
            n = (e + 2).mul_(e)
            rows.mul_(n).div_(n.add_(2)).mul_(total)
        return y
