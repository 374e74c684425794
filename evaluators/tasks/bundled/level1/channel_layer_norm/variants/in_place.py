# expect: faster
# analysis: The reference transposes twice and makes many passes over memory.
# design: Reduce over the channels directly and work in place on one buffer.
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
        variance = (centred * centred).mean(dim=1, keepdim=True)
        result = centred.mul_(torch.rsqrt(variance + self.eps))
        return result.mul_(self.weight.unsqueeze(1)).add_(self.bias.unsqueeze(1))
