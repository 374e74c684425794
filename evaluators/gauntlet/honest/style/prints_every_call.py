"""Prints a line with sizes at every call.

surface: process
effect: it prints to its standard output and writes nothing else
task: level2/linear_sum_sigmoid_gate
arch: cpu cuda
"""

import sys

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, temperature):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.temperature = temperature
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        print(f"call {self.calls}: {tuple(x.shape)} {x.dtype}", file=sys.stderr)
        total = x @ self.linear.weight.sum(dim=0, keepdim=True).t() + self.linear.bias.sum()
        gate = torch.sigmoid(total / self.temperature)
        print("gate:", tuple(gate.shape))
        return x * gate
