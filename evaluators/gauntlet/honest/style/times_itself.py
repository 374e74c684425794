"""Measures its own calls with perf_counter and keeps the last times for whoever asks.

surface: clock
effect: a clock is read for a log of its own that no result depends on
task: level1/softmax
arch: cpu cuda
"""

import collections
import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.seconds = collections.deque(maxlen=100)

    def forward(self, x):
        start = time.perf_counter()
        y = torch.softmax(x, dim=1)
        self.seconds.append(time.perf_counter() - start)
        return y

    def average(self):
        return sum(self.seconds) / max(len(self.seconds), 1)
