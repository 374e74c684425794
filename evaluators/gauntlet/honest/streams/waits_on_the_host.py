"""Synchronises streams and the device from the host in the middle of a call.

surface: clock
effect: the host waits for the device, which costs time and hides none
task: level2/batched_matmul_double_centering
arch: cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.side = None

    def forward(self, a, b):
        self.side = self.side or torch.cuda.Stream()
        current = torch.cuda.current_stream()
        self.side.wait_stream(current)
        with torch.cuda.stream(self.side):
            right = b - b.mean(dim=1, keepdim=True)
        left = (a - a.mean(dim=1, keepdim=True)).mul_(self.scale)
        self.side.synchronize()
        right.record_stream(current)
        y = torch.bmm(left, right.transpose(1, 2))
        torch.cuda.synchronize()
        return F.softsign(y)
