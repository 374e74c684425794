# expect: faster
# analysis: The reference makes many separate passes over memory.
# design: Let torch.compile fuse all passes into one loop.
import math

import torch
import torch.nn as nn


@torch.compile
def gelu(x):
    scale = 2.0 * math.sqrt(2.0 / math.pi)
    return x * torch.sigmoid(scale * (x + 0.044715 * x * x * x))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return gelu(x)
