# expect: faster
# analysis: The reference transposes twice and makes many passes over memory.
# design: Use the fused layer norm kernel between two transposes.
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, channels, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))
        self.eps = eps

    def forward(self, x):
        rows = x.transpose(1, 2)
        result = F.layer_norm(rows, self.weight.shape, self.weight, self.bias, self.eps)
        return result.transpose(1, 2).contiguous()
