"""Multiplies matrices in Triton at single precision and scales rows as it writes them.

surface: speed
effect: a product at full single precision with the row scale in its epilogue
task: level1/diagonal_matmul
arch: cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn

TILES = [
    triton.Config({"tm": 64, "tn": 64, "tk": 32}, num_warps=4, num_stages=3),
    triton.Config({"tm": 128, "tn": 64, "tk": 16}, num_warps=8, num_stages=3),
]


@triton.autotune(configs=TILES, key=["m", "n", "k"])
@triton.jit
def product(d, a, b, c, m, n, k, tm: tl.constexpr, tn: tl.constexpr, tk: tl.constexpr):
    rows = tl.program_id(0) * tm + tl.arange(0, tm)[:, None]
    columns = tl.program_id(1) * tn + tl.arange(0, tn)[None, :]
    total = tl.zeros((tm, tn), dtype=tl.float32)
    for start in range(0, k, tk):
        along_a = start + tl.arange(0, tk)[None, :]
        along_b = start + tl.arange(0, tk)[:, None]
        left = tl.load(a + rows * k + along_a, mask=(rows < m) & (along_a < k), other=0.0)
        right = tl.load(b + along_b * n + columns, mask=(along_b < k) & (columns < n), other=0.0)
        total = tl.dot(left, right, total, input_precision="ieee")
    scale = tl.load(d + rows, mask=rows < m, other=0.0)
    tl.store(c + rows * n + columns, total * scale, mask=(rows < m) & (columns < n))


class ModelNew(nn.Module):
    def forward(self, diagonal, a, b):
        diagonal, a, b = diagonal.contiguous(), a.contiguous(), b.contiguous()
        (m, k), n = a.shape, b.shape[1]
        out = torch.empty(m, n, dtype=a.dtype, device=a.device)

        def grid(tile):
            return triton.cdiv(m, tile["tm"]), triton.cdiv(n, tile["tn"])

        product[grid](diagonal, a, b, out, m, n, k)
        return out
