"""Writes each step over the one before by out= arguments, in two buffers of this call.

surface: memory
effect: every `out=` names a fresh tensor of this call
task: level1/gelu_tanh
arch: cpu cuda
"""

import math

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        scale = math.sqrt(2.0 / math.pi)
        y, half = torch.empty_like(x), torch.empty_like(x)
        torch.mul(x, x, out=y)
        torch.add(torch.ones((), dtype=x.dtype, device=x.device), y, alpha=0.044715, out=y)
        torch.mul(y, x, out=y)
        torch.mul(y, scale, out=y)
        torch.tanh(y, out=y)
        torch.add(y, 1.0, out=y)
        torch.mul(x, 0.5, out=half)
        return torch.mul(half, y, out=y)
