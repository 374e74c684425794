# expect: slower
# analysis: The reference computes the exponential twice and makes many passes over memory.
# design: Handle one row at a time and stack the results.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        rows = []
        for row in x.unbind(0):
            weights = torch.exp(row - torch.max(row))
            rows.append(weights / torch.sum(weights))
        return torch.stack(rows)
