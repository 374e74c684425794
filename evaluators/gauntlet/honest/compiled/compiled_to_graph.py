"""Compiles with reduce-overhead, which replays a CUDA graph, and clones its output.

surface: memory
effect: torch copies inputs into its graph at every call, and the output is cloned
task: level2/highway_gate
arch: cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


@torch.compile(mode="reduce-overhead")
def mix(x, transform, transform_bias, gate_weight, gate_bias):
    gate = torch.sigmoid(F.linear(x, gate_weight, gate_bias))
    transformed = torch.tanh(F.linear(x, transform, transform_bias))
    return gate * transformed + (1.0 - gate) * x


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.transform = nn.Linear(features, features)
        self.gate = nn.Linear(features, features)

    def forward(self, x):
        first, second = self.transform, self.gate
        return mix(x, first.weight, first.bias, second.weight, second.bias).clone()
