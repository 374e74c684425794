"""Holds a lock during a call, since a scratch buffer belongs to the model.

surface: process
effect: the lock only keeps two threads from one buffer
task: level2/swiglu_channels_first
arch: cpu cuda
"""

import threading

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.gate = nn.Linear(features, hidden)
        self.value = nn.Linear(features, hidden)
        self.lock = threading.Lock()
        self.scratch = None

    def forward(self, x):
        flat = x.reshape(-1, x.size(-1))
        with self.lock:
            size = (flat.size(0), self.gate.out_features)
            if (
                self.scratch is None
                or self.scratch.shape != size
                or self.scratch.device != x.device
            ):
                self.scratch = flat.new_empty(size)
            torch.addmm(self.gate.bias, flat, self.gate.weight.t(), out=self.scratch)
            y = self.value(flat).mul_(F.silu(self.scratch, inplace=True))
        return y.view(*x.shape[:-1], -1)
