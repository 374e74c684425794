"""Normalises groups through views of the product, so that nothing is copied.

surface: memory
effect: the views alias the product, which belongs to this call
task: level2/matmul_group_norm_hardtanh
arch: cpu cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, num_groups, limit):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(in_features, out_features) / in_features**0.5)
        self.gamma = nn.Parameter(torch.randn(out_features))
        self.beta = nn.Parameter(torch.randn(out_features))
        self.num_groups = num_groups
        self.limit = limit

    def forward(self, x):
        y = torch.matmul(x, self.weight)
        groups = y.view(y.size(0), self.num_groups, -1)
        var, mean = torch.var_mean(groups, dim=2, keepdim=True, correction=0)
        groups.sub_(mean).mul_(torch.rsqrt(var + 1e-5))
        torch.addcmul(self.beta, y, self.gamma, out=y)
        return y.clamp_(-self.limit, self.limit)
