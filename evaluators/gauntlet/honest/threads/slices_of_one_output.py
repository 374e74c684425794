"""Lets threads fill slices of one output and joins each of them.

surface: memory
effect: threads write to separate slices, and all are joined
task: level1/channel_layer_norm
arch: cpu
"""

import threading

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))
        self.eps = eps

    @torch.no_grad()
    def fill(self, out, x):
        variance, mean = torch.var_mean(x, dim=1, keepdim=True, correction=0)
        torch.sub(x, mean, out=out)
        out.mul_(torch.rsqrt(variance + self.eps))
        out.mul_(self.weight.unsqueeze(1)).add_(self.bias.unsqueeze(1))

    def forward(self, x):
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        parts = list(zip(out.chunk(2), x.chunk(2)))
        workers = [threading.Thread(target=self.fill, args=part) for part in parts[1:]]
        for worker in workers:
            worker.start()
        self.fill(*parts[0])
        for worker in workers:
            worker.join()
        return out
