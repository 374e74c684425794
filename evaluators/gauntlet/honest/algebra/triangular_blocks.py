"""Multiplies only the blocks of two triangular matrices that are not zero.

surface: speed
effect: holds for every input: blocks above the diagonal are never computed
task: level1/triangular_matmul
arch: cpu cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    smallest = 128

    def forward(self, a, b):
        result = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
        self.multiply(torch.tril(a), torch.tril(b), result)
        return result

    def multiply(self, a, b, result):
        size = a.shape[0]
        if size <= self.smallest:
            torch.mm(a, b, out=result)
            return
        half = size // 2
        top, bottom = slice(0, half), slice(half, size)
        self.multiply(a[top, top], b[top, top], result[top, top])
        self.multiply(a[bottom, bottom], b[bottom, bottom], result[bottom, bottom])
        left = torch.mm(a[bottom, top], b[top, top])
        result[bottom, top] = left.addmm_(a[bottom, bottom], b[bottom, top])
