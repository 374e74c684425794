# expect: faster
# analysis: The reference computes the exponential twice and makes many passes over memory.
# design: Compute the exponential once and work in place on one buffer.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        result = x - torch.amax(x, dim=1, keepdim=True)
        result.exp_()
        result.div_(result.sum(dim=1, keepdim=True))
        return result
