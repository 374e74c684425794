# expect: faster
# analysis: The scale and the residual each make a pass over the large output.
# design: Fold the scale into the matmul, then work in place.
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
        weight, bias = self.linear.weight, self.linear.bias
        y = torch.addmm(bias, x, weight.t(), beta=self.factor, alpha=self.factor)
        y = y.clamp_(-self.limit, self.limit)
        total = torch.logsumexp(y, dim=1, keepdim=True)
        return F.mish(y, inplace=True).mul_(total)
