# expect: faster
# analysis: The hard tanh uses masks and two full tensors of limits.
# design: Replace both selections by one clamp.
import torch
import torch.nn as nn


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
        groups = y.view(y.size(0), self.num_groups, -1)
        mean = groups.mean(dim=2, keepdim=True)
        var = ((groups - mean) ** 2).mean(dim=2, keepdim=True)
        y = ((groups - mean) / torch.sqrt(var + 1e-5)).view(y.shape)
        return torch.clamp(y * self.gamma + self.beta, -self.limit, self.limit)
