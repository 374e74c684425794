"""Takes the log-sum-exp and Mish from the same exponential; clamped values cannot overflow.

surface: comparison
effect: holds for every input: Mish as a fraction of polynomials of one exponential
task: level2/linear_scale_residual_clamp_logsumexp_mish
arch: cpu cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, scale, limit):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = scale
        self.limit = limit

    def forward(self, x):
        y = self.linear(x).mul_(2 * self.scale).clamp_(-self.limit, self.limit)
        e = torch.exp(y)
        total = e.sum(dim=1, keepdim=True).log_()
        # tanh(log(1 + e)) == n / (n + 2) with n = e * (e + 2)
        n = (e + 2).mul_(e)
        return y.mul_(n).mul_(total).div_(n.add_(2))
