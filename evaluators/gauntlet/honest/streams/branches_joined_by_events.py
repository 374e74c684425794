"""Computes a gate on a second stream, forked and joined by events.

surface: streams
effect: events order the two branches before and behind the second stream
task: level2/highway_gate
arch: cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.transform = nn.Linear(features, features)
        self.gate = nn.Linear(features, features)
        self.side = None

    def forward(self, x):
        if self.side is None:
            self.side = torch.cuda.Stream()
            self.fork, self.join = torch.cuda.Event(), torch.cuda.Event()
        current = torch.cuda.current_stream()
        self.fork.record(current)
        self.side.wait_event(self.fork)
        with torch.cuda.stream(self.side):
            gate = torch.sigmoid(self.gate(x))
            self.join.record(self.side)
        transformed = torch.tanh(self.transform(x))
        current.wait_event(self.join)
        gate.record_stream(current)
        return torch.lerp(x, transformed, gate)
