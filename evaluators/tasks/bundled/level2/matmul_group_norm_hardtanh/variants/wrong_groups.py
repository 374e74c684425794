# expect: wrong
# analysis: The normalisation is written as many separate passes.
# design: Normalise the whole row with one layer norm.
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, num_groups, limit):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(in_features, out_features))
        self.gamma = nn.Parameter(torch.randn(out_features))
        self.beta = nn.Parameter(torch.randn(out_features))
        self.limit = limit

    def forward(self, x):
        y = torch.mm(x, self.weight)
        y = F.layer_norm(y, y.shape[1:], self.gamma, self.beta, 1e-5)
        return y.clamp_(-self.limit, self.limit)
