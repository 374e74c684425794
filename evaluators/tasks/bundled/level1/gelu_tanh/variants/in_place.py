# expect: faster
# analysis: The reference makes many separate passes over memory.
# design: Work in place on one buffer and use fewer passes.
import math

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        scale = math.sqrt(2.0 / math.pi)
        result = x * x
        result.mul_(0.044715 * scale).add_(scale).mul_(x)
        result.tanh_().add_(1.0).mul_(x).mul_(0.5)
        return result
