# expect: wrong
# analysis: The residual adds the output to itself in a separate pass.
# design: Drop the residual and work in place.
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, scale, limit):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = scale
        self.limit = limit

    def forward(self, x):
        y = self.linear(x).mul_(self.scale)
        y = y.clamp_(-self.limit, self.limit)
        total = torch.logsumexp(y, dim=1, keepdim=True)
        return F.mish(y, inplace=True).mul_(total)
