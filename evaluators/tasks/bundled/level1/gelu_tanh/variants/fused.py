# expect: faster
# analysis: The reference makes many separate passes over memory.
# design: One fused GELU kernel reads and writes the data once.
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return F.gelu(x, approximate="tanh")
