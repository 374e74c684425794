"""Computes penalty, mask and softmax of a row of scores in one kernel.

surface: task
effect: the future is never written but for the zeros that belong there
task: level2/alibi_attention_scores
arch: cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def row_kernel(scores, slope, heads, length, scale, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    query = row % length
    head = (row // length) % heads
    key = tl.arange(0, block)
    past = key <= query
    penalty = tl.load(slope + head) * (query - key).to(tl.float32)
    v = tl.load(scores + row * length + key, mask=past, other=0.0) * scale - penalty
    v = tl.where(past, v, float("-inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(scores + row * length + key, e / tl.sum(e, axis=0), mask=key < length)


class ModelNew(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.slope = nn.Parameter(torch.rand(heads))

    def forward(self, q, k):
        batch, heads, length, size = q.shape
        # The product belongs to this call, so the kernel may overwrite it row by row.
        scores = torch.matmul(q, k.transpose(2, 3))
        block = triton.next_power_of_2(length)
        rows = batch * heads * length
        row_kernel[(rows,)](scores, self.slope, heads, length, size**-0.5, block=block)
        return scores
