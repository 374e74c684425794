# expect: slower
# analysis: The groups lie in the contiguous dimension of the output.
# design: Move the batch last and normalise each group as a block.
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
        y = torch.mm(x, self.weight).t().contiguous()
        groups = y.view(self.num_groups, -1, y.size(1))
        var, mean = torch.var_mean(groups, dim=1, keepdim=True, unbiased=False)
        groups = (groups - mean) / torch.sqrt(var + 1e-5)
        y = groups.view(y.shape).t().contiguous()
        return torch.clamp(y * self.gamma + self.beta, -self.limit, self.limit)
