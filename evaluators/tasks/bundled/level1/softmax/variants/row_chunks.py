# expect: faster
# analysis: The reference computes the exponential twice and makes many passes over memory.
# design: Work on small chunks of rows that stay in cache.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        chunks = []
        for rows in x.split(16, dim=0):
            weights = torch.exp(rows - torch.amax(rows, dim=1, keepdim=True))
            chunks.append(weights / weights.sum(dim=1, keepdim=True))
        return torch.cat(chunks, dim=0)
