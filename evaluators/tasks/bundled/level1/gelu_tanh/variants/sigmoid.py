# expect: faster
# analysis: The reference makes many separate passes over memory.
# design: Write the tanh as a sigmoid of twice the argument.
import math

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        scale = 2.0 * math.sqrt(2.0 / math.pi)
        inner = scale * (x + 0.044715 * x * x * x)
        return x * torch.sigmoid(inner)
