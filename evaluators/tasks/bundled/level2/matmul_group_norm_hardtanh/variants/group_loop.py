# expect: same
# analysis: The reference makes a full pass over the output for each operator.
# design: Multiply and normalise one group at a time.
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
        groups = []
        for weight in self.weight.chunk(self.num_groups, dim=1):
            y = torch.mm(x, weight.contiguous())
            groups.append(F.layer_norm(y, y.shape[1:]))
        y = torch.cat(groups, dim=1)
        return torch.clamp(y * self.gamma + self.beta, -self.limit, self.limit)
