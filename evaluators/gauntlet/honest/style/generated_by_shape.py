"""Writes Python source for each number of taps, unrolled, and runs it by exec.

surface: compiler
effect: generated source for each size, which holds for all values
task: level1/depthwise_conv1d
arch: cpu cuda
"""

import functools

import torch
import torch.nn.functional as F
from torch import nn


@functools.lru_cache(maxsize=None)
def specialised(taps):
    lines = ["def convolve(x, w, b, length):"]
    lines.append(f"    y = torch.addcmul(b, x[:, :, {taps - 1}:], w[:, {taps - 1}:])")
    for tap in range(taps - 1):
        lines.append(f"    y.addcmul_(x[:, :, {tap}:{tap} + length], w[:, {tap}:{tap + 1}])")
    lines.append("    return y")
    namespace = {"torch": torch}
    exec("\n".join(lines), namespace)
    return namespace["convolve"]


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, kernel_size))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        taps = self.weight.shape[2]
        padded = F.pad(x, (taps - 1, 0))
        return specialised(taps)(padded, self.weight[:, 0], self.bias.unsqueeze(1), x.shape[2])
