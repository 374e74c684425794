# expect: slower
# analysis: The reference transposes twice and makes many passes over memory.
# design: Compute mean and variance with one call over the channels.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, channels, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))
        self.eps = eps

    def forward(self, x):
        variance, mean = torch.var_mean(x, dim=1, correction=0, keepdim=True)
        normalised = (x - mean) * torch.rsqrt(variance + self.eps)
        return torch.addcmul(self.bias.unsqueeze(1), normalised, self.weight.unsqueeze(1))
