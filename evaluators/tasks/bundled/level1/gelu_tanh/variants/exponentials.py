# expect: same
# analysis: The reference makes many separate passes over memory.
# design: Write the tanh with two exponentials.
import math

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
        inner = torch.clamp(inner, -15.0, 15.0)
        positive = torch.exp(inner)
        negative = torch.exp(-inner)
        tanh = (positive - negative) / (positive + negative)
        return 0.5 * x * (1.0 + tanh)
