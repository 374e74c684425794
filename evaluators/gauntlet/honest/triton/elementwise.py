"""Computes an activation in one Triton kernel.

surface: speed
effect: one Triton kernel in place of eight of torch
task: level1/gelu_tanh
arch: cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def gelu_kernel(x, out, count, block: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = place < count
    v = tl.load(x + place, mask=inside)
    inner = 1.5957691216057308 * (v + 0.044715 * v * v * v)
    tl.store(out + place, v / (1.0 + tl.exp(-inner)), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        gelu_kernel[(triton.cdiv(x.numel(), 2048),)](x, out, x.numel(), block=2048, num_warps=8)
        return out
