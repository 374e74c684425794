# expect: faster
# analysis: The reference makes many separate passes over memory.
# design: Write the tanh as a sigmoid and work in place on one buffer.
import math

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        scale = 2.0 * math.sqrt(2.0 / math.pi)
        result = x * x
        result.mul_(0.044715 * scale).add_(scale).mul_(x)
        result.sigmoid_().mul_(x)
        return result
