"""Keeps scratch memory for each thread, which no result ever refers to.

surface: memory
effect: scratch is written before it is read, and each thread has its own
task: level1/gelu_tanh
arch: cpu cuda
"""

import math
import threading

import torch
from torch import nn

local = threading.local()


def scratch(like):
    kept = getattr(local, "tensor", None)
    if kept is None or (kept.shape, kept.dtype, kept.device) != (
        like.shape,
        like.dtype,
        like.device,
    ):
        local.tensor = kept = torch.empty_like(like)
    return kept


class ModelNew(nn.Module):
    def forward(self, x):
        inner = scratch(x)
        torch.mul(x, x, out=inner)
        inner.mul_(0.044715).add_(1.0).mul_(x).mul_(math.sqrt(2.0 / math.pi)).tanh_().add_(1.0)
        return torch.mul(inner, x).mul_(0.5)
