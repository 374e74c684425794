"""Uses a single thread for a call and puts torch's number of threads back.

surface: process
effect: the number of threads is set back, also where the work raises
task: level1/softmax
arch: cpu
"""

import contextlib

import torch
from torch import nn


@contextlib.contextmanager
def threads(count):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class ModelNew(nn.Module):
    def forward(self, x):
        # Starting threads costs more than they gain for a few rows.
        with threads(1 if x.numel() < 1 << 20 else torch.get_num_threads()):
            return torch.softmax(x, dim=1)
