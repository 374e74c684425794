# expect: faster
# analysis: The log-sum-exp searches a maximum that the clamp already bounds.
# design: Sum the exponentials directly and use one fused Mish.
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, scale, limit):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.factor = 2 * scale
        self.limit = limit

    def forward(self, x):
        y = self.linear(x).mul_(self.factor)
        y = y.clamp_(-self.limit, self.limit)
        total = y.exp().sum(dim=1, keepdim=True).log_()
        return F.mish(y, inplace=True).mul_(total)
