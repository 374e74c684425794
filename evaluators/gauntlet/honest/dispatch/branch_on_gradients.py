"""Works in place while no gradient is recorded, and out of place otherwise.

surface: task
effect: in place only where nobody needs gradients, with equal values
task: level2/highway_gate
arch: cpu cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.transform = nn.Linear(features, features)
        self.gate = nn.Linear(features, features)

    def forward(self, x):
        gate, transformed = self.gate(x), self.transform(x)
        if torch.is_grad_enabled():
            return torch.lerp(x, torch.tanh(transformed), torch.sigmoid(gate))
        return transformed.tanh_().sub_(x).mul_(gate.sigmoid_()).add_(x)
