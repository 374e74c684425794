"""Scans by a product with a triangle of ones, which is kept from call to call.

surface: memory
effect: a cached matrix of ones, keyed by length, type and device
task: level1/masked_cumsum
arch: cpu cuda
"""

import functools

import torch
from torch import nn


@functools.lru_cache(maxsize=8)
def triangle(length, dtype, device):
    return torch.ones(length, length, dtype=dtype, device=device).tril()


class ModelNew(nn.Module):
    def forward(self, x, mask):
        ones = triangle(x.size(1), x.dtype, x.device)
        return torch.matmul(ones, x.masked_fill(~mask.unsqueeze(-1), 0.0))
