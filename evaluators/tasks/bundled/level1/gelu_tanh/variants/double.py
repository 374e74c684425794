# expect: slower
# analysis: The reference makes many separate passes over memory.
# design: Use the fused GELU in double precision and convert back.
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return F.gelu(x.double(), approximate="tanh").float()
