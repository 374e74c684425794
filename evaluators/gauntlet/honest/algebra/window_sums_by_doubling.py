"""Sums windows by doubling, with three additions where the window has eight elements.

surface: speed
effect: holds for every input: a window of eight is two windows of four
task: level1/avg_pool1d
arch: cpu cuda
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, kernel_size, stride, padding):
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding

    def forward(self, x):
        part = F.pad(x, (self.padding, self.padding))
        width, total, done = 1, None, 0
        # `part` holds the sums of `width` neighbours; the bits of the size say which are needed.
        while width <= self.kernel_size:
            if self.kernel_size & width:
                count = x.shape[2] + 2 * self.padding - self.kernel_size + 1
                piece = part[:, :, done : done + count]
                total = piece if total is None else total + piece
                done += width
            if 2 * width > self.kernel_size:
                break
            part = part[:, :, :-width] + part[:, :, width:]
            width *= 2
        return (total / self.kernel_size)[:, :, :: self.stride].contiguous()
