"""Shares masks among models by weak references, so that they live as long as one needs them.

surface: memory
effect: only masks are kept, by size; they vanish with the model
task: level1/triangular_matmul
arch: cpu cuda
"""

import weakref

import torch
from torch import nn

masks = weakref.WeakValueDictionary()


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.held = None

    def mask(self, like):
        key = (like.shape, str(like.device))
        found = masks.get(key)
        if found is None:
            found = torch.ones(like.shape, dtype=torch.bool, device=like.device).triu_(1)
            masks[key] = found
        self.held = found
        return found

    def forward(self, a, b):
        above = self.mask(a)
        product = torch.matmul(a.masked_fill(above, 0.0), b.masked_fill(above, 0.0))
        return product.masked_fill_(above, 0.0)
