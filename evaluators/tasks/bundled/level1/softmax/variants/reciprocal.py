# expect: faster
# analysis: The reference computes the exponential twice and makes many passes over memory.
# design: Compute the exponential once and multiply by the reciprocal of its sum.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        maximum = torch.amax(x, dim=1, keepdim=True)
        weights = torch.exp(x - maximum)
        return weights * weights.sum(dim=1, keepdim=True).reciprocal()
