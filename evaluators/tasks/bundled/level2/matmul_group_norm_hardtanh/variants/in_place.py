# expect: faster
# analysis: Each elementwise operator allocates and writes a new tensor.
# design: Work in place on the output of the matmul.
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
        groups.sub_(groups.mean(dim=2, keepdim=True))
        var = groups.square().mean(dim=2, keepdim=True)
        groups.mul_(var.add_(1e-5).rsqrt_())
        return y.mul_(self.gamma).add_(self.beta).clamp_(-self.limit, self.limit)
