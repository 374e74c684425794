# expect: faster
# analysis: The reference transposes twice and makes many passes over memory.
# design: Reduce over the channels directly, without a transpose.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, channels, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))
        self.eps = eps

    def forward(self, x):
        mean = x.mean(dim=1, keepdim=True)
        variance = ((x - mean) ** 2).mean(dim=1, keepdim=True)
        normalised = (x - mean) / torch.sqrt(variance + self.eps)
        return normalised * self.weight.unsqueeze(1) + self.bias.unsqueeze(1)
