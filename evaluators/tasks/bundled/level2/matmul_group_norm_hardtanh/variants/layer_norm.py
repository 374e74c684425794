# expect: faster
# analysis: The normalisation is written as many separate passes.
# design: Normalise the groups as rows with layer norm, then scale in place.
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
        groups = y.view(y.size(0), self.num_groups, -1)
        y = F.layer_norm(groups, groups.shape[2:]).view(y.shape)
        return y.mul_(self.gamma).add_(self.beta).clamp_(-self.limit, self.limit)
