"""Turns a whole linear layer into one matrix-vector product, since only its sum is needed.

surface: speed
effect: holds for every input: a sum over outputs is a product with the summed weight
task: level2/linear_sum_sigmoid_gate
arch: cpu cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, temperature):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.temperature = temperature

    def forward(self, x):
        # The weights are summed at every call, so that new ones are respected.
        weight = self.linear.weight.sum(dim=0)
        total = torch.mv(x, weight) + self.linear.bias.sum()
        return x * torch.sigmoid(total / self.temperature).unsqueeze(1)
