"""Writes a window of eight out term by term rather than in a loop.

surface: task
effect: written out for a window of eight, with a loop for every other
task: level1/avg_pool1d
arch: cpu cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, kernel_size, stride, padding):
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding

    def forward(self, x):
        padded = F.pad(x, (self.padding, self.padding))
        count = (padded.shape[2] - self.kernel_size) // self.stride + 1
        span = (count - 1) * self.stride + 1
        if self.kernel_size == 8:
            y = padded[:, :, 0 : 0 + span : self.stride].clone()
            y += padded[:, :, 1 : 1 + span : self.stride]
            y += padded[:, :, 2 : 2 + span : self.stride]
            y += padded[:, :, 3 : 3 + span : self.stride]
            y += padded[:, :, 4 : 4 + span : self.stride]
            y += padded[:, :, 5 : 5 + span : self.stride]
            y += padded[:, :, 6 : 6 + span : self.stride]
            y += padded[:, :, 7 : 7 + span : self.stride]
            y *= 0.125
            return y
        y = torch.zeros(*padded.shape[:2], count, dtype=x.dtype, device=x.device)
        for tap in range(self.kernel_size):
            y += padded[:, :, tap : tap + span : self.stride]
        return y / self.kernel_size
