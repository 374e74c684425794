"""Hands two halves of the batch to a pool of threads that ends with the call.

surface: process
effect: the pool is closed, and so joined, before the call returns
task: level2/linear_scale_residual_clamp_logsumexp_mish
arch: cpu cuda
"""

from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, scale, limit):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = scale
        self.limit = limit

    def rows(self, x, with_gradient, stream):
        # Whether gradients are recorded, and the current stream, are properties of each thread.
        with torch.set_grad_enabled(with_gradient), torch.cuda.stream(stream):
            y = torch.clamp(self.linear(x) * (2 * self.scale), -self.limit, self.limit)
            return F.mish(y) * torch.logsumexp(y, dim=1, keepdim=True)

    def forward(self, x):
        state = torch.is_grad_enabled(), torch.cuda.current_stream() if x.is_cuda else None
        with ThreadPoolExecutor(2) as pool:
            parts = pool.map(lambda part: self.rows(part, *state), x.chunk(2))
            return torch.cat(list(parts))
