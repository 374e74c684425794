"""Traces a function at the first call of a shape and replays the trace afterwards.

surface: compiler
effect: what is traced has no branches, takes the weights, and is kept by shape
task: level2/matmul_group_norm_hardtanh
arch: cuda
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
        self.traces = {}

    def forward(self, x):
        arguments = (x, self.weight, self.gamma, self.beta)
        key = (x.shape, x.dtype, x.device)
        if key not in self.traces:
            groups, limit = self.num_groups, self.limit

            def compute(x, weight, gamma, beta):
                y = F.group_norm(torch.matmul(x, weight), groups, gamma, beta, 1e-5)
                return torch.clamp(y, -limit, limit)

            example = tuple(one.detach() for one in arguments)
            self.traces[key] = torch.jit.trace(compute, example, check_trace=False)
        return self.traces[key](*arguments)
