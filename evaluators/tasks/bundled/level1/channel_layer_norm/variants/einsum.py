# expect: slower
# analysis: The reference transposes twice and makes many passes over memory.
# design: Sum the squares with one einsum and apply weight and bias together.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, channels, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))
        self.eps = eps

    def forward(self, x):
        centred = x - x.mean(dim=1, keepdim=True)
        squares = torch.einsum("bcl,bcl->bl", centred, centred).unsqueeze(1)
        scale = torch.rsqrt(squares / x.shape[1] + self.eps)
        return torch.addcmul(self.bias.unsqueeze(1), centred.mul_(scale), self.weight.unsqueeze(1))
