# expect: faster
# analysis: The normalisation is written as many separate passes.
# design: Use the fused group norm, then clamp in place.
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, num_groups, limit):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(in_features, out_features))
        self.gamma = nn.Parameter(torch.randn(out_features))
        self.beta = nn.Parameter(torch.randn(out_features))
        self.num_groups = num_groups
        self.limit = limit

    def forward(self, x):
        y = torch.mm(x, self.weight)
        y = F.group_norm(y, self.num_groups, self.gamma, self.beta, 1e-5)
        return y.clamp_(-self.limit, self.limit)
