"""Works through blocks of rows in a random order, without torch's generator.

surface: inputs
effect: chance decides the order of blocks alone, by a generator of its own
task: level2/highway_gate
arch: cpu cuda
"""

import random

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.transform = nn.Linear(features, features)
        self.gate = nn.Linear(features, features)
        self.random = random.Random(0)

    def forward(self, x):
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        blocks = list(zip(x.split(1024), out.split(1024)))
        self.random.shuffle(blocks)
        for rows, target in blocks:
            gate = torch.sigmoid(self.gate(rows))
            torch.lerp(rows, torch.tanh(self.transform(rows)), gate, out=target)
        return out
