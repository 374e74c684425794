"""Holds a whole row in registers between reading and writing it.

surface: speed
effect: a row is read once and written once
task: level1/softmax
arch: cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(x, out, columns, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, block)
    inside = place < columns
    v = tl.load(x + row * columns + place, mask=inside, other=float("-inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(out + row * columns + place, e / tl.sum(e, axis=0), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty_like(x)
        block = triton.next_power_of_2(columns)
        softmax_kernel[(rows,)](x, out, columns, block=block, num_warps=16 if block > 4096 else 4)
        return out
