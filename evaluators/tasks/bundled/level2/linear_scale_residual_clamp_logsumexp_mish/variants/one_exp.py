# expect: faster
# analysis: Mish and log-sum-exp both compute the same exponentials.
# design: Compute the exponential once and build Mish from it.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, scale, limit):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.factor = 2 * scale
        self.limit = limit

    def forward(self, x):
        y = self.linear(x).mul_(self.factor)
        y = y.clamp_(-self.limit, self.limit)
        e = y.exp()
        total = e.sum(dim=1, keepdim=True).log_()
        n = (e + 2).mul_(e)
        return y.mul_(n).div_(n.add_(2)).mul_(total)
