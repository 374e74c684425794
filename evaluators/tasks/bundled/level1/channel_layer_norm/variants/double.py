# expect: slower
# analysis: The reference transposes twice and makes many passes over memory.
# design: Compute the passes in double precision and convert back.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, channels, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))
        self.eps = eps

    def forward(self, x):
        rows = x.double().transpose(1, 2).contiguous()
        centred = rows - rows.mean(dim=-1, keepdim=True)
        variance = (centred**2).mean(dim=-1, keepdim=True)
        result = (centred / torch.sqrt(variance + self.eps)).float()
        result = result * self.weight + self.bias
        return result.transpose(1, 2).contiguous()
