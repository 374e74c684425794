"""Runs in inference mode, whose tensors have no version counters.

surface: memory
effect: inference mode only spares bookkeeping; values are the same
task: level2/matmul_group_norm_hardtanh
arch: cpu cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, num_groups, limit):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(in_features, out_features) / in_features**0.5)
        self.gamma = nn.Parameter(torch.randn(out_features))
        self.beta = nn.Parameter(torch.randn(out_features))
        self.num_groups = num_groups
        self.limit = limit

    @torch.inference_mode()
    def forward(self, x):
        y = torch.mm(x, self.weight)
        y = F.group_norm(y, self.num_groups, self.gamma, self.beta, 1e-5)
        return F.hardtanh(y, -self.limit, self.limit)
