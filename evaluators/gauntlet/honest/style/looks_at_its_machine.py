"""Reads environment, platform and number of cores to choose how much to do at a time.

surface: process
effect: what the machine is only decides the size of blocks
task: level2/batched_matmul_double_centering
arch: cpu cuda
"""

import os
import platform

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        wide = platform.machine() in ("x86_64", "aarch64")
        self.block = int(os.environ.get("BLOCK_OF_BATCHES", 8 * cores if wide else 4))

    def centred(self, a, b):
        a = a - a.mean(dim=1, keepdim=True)
        b = b - b.mean(dim=1, keepdim=True)
        y = torch.bmm(a, b.transpose(1, 2)).mul_(self.scale)
        return y.div_(y.abs().add_(1.0))

    def forward(self, a, b):
        block = a.size(0) if a.is_cuda else self.block
        return torch.cat([self.centred(*part) for part in zip(a.split(block), b.split(block))])
