# expect: faster
# analysis: The reference transposes twice and makes many passes over memory.
# design: Handle one sample at a time, so that it stays in cache.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, channels, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))
        self.eps = eps

    def forward(self, x):
        weight, bias = self.weight.unsqueeze(1), self.bias.unsqueeze(1)
        chunks = []
        for sample in x.split(1, dim=0):
            centred = sample - sample.mean(dim=1, keepdim=True)
            variance = (centred * centred).mean(dim=1, keepdim=True)
            normalised = centred.mul_(torch.rsqrt(variance + self.eps))
            chunks.append(normalised.mul_(weight).add_(bias))
        return torch.cat(chunks, dim=0)
