"""Uses Triton where it is installed and the tensor is on a GPU, and torch elsewhere.

surface: task
effect: both paths compute the same; which one depends on what is installed
task: level1/gelu_tanh
arch: cpu cuda
"""

import torch
import torch.nn.functional as F
from torch import nn

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

if triton is not None:

    @triton.jit
    def kernel(x, out, count, block: tl.constexpr):
        place = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
        inside = place < count
        v = tl.load(x + place, mask=inside)
        inner = 1.5957691216057308 * (v + 0.044715 * v * v * v)
        tl.store(out + place, v / (1.0 + tl.exp(-inner)), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        if triton is None or not x.is_cuda or not x.is_contiguous():
            return F.gelu(x, approximate="tanh")
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), block=1024)
        return out
