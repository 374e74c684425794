# expect: faster
# analysis: The reference makes many separate passes over memory.
# design: Work on small chunks of rows that stay in cache.
import math

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        scale = 2.0 * math.sqrt(2.0 / math.pi)
        result = torch.empty_like(x)
        for rows, out in zip(x.split(32), result.split(32)):
            inner = (rows * rows).mul_(0.044715 * scale).add_(scale).mul_(rows)
            torch.mul(rows, inner.sigmoid_(), out=out)
        return result
