# expect: same
# analysis: The reference computes the exponential twice and makes many passes over memory.
# design: Compute the passes in double precision and convert back.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        wide = x.double()
        weights = torch.exp(wide - torch.amax(wide, dim=1, keepdim=True))
        result = weights / weights.sum(dim=1, keepdim=True)
        return result.float()
