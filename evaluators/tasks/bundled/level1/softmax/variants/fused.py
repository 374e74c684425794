# expect: faster
# analysis: The reference computes the exponential twice and makes many passes over memory.
# design: One fused softmax kernel reads and writes the data once.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.softmax(x, dim=1)
