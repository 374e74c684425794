"""Lets Triton's autotuner try block sizes at the first call of a size.

surface: clock
effect: the autotuner times whole kernels at the first call of a size, all of them right
task: level2/swiglu_channels_first
arch: cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCKS = [triton.Config({"block": size}, num_warps=warps) for size, warps in ((1024, 4), (4096, 8))]


@triton.autotune(configs=BLOCKS, key=["count"])
@triton.jit
def gate_kernel(gate, value, out, count, block: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = place < count
    g = tl.load(gate + place, mask=inside)
    v = tl.load(value + place, mask=inside)
    tl.store(out + place, g / (1.0 + tl.exp(-g)) * v, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.gate = nn.Linear(features, hidden)
        self.value = nn.Linear(features, hidden)

    def forward(self, x):
        gate, value = self.gate(x), self.value(x)
        out = torch.empty_like(gate)
        count = gate.numel()
        gate_kernel[lambda chosen: (triton.cdiv(count, chosen["block"]),)](gate, value, out, count)
        return out
