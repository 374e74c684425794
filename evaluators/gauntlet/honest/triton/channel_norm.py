"""Normalises over the second dimension by tiles of channels and places.

surface: layout
effect: reads columns of channels where they lie
task: level1/channel_layer_norm
arch: cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def norm_kernel(x, weight, bias, out, channels, length, eps, tc: tl.constexpr, tl_: tl.constexpr):
    start = tl.program_id(1).to(tl.int64) * channels * length
    c = tl.arange(0, tc)[:, None]
    place = tl.program_id(0) * tl_ + tl.arange(0, tl_)[None, :]
    inside = (c < channels) & (place < length)
    v = tl.load(x + start + c * length + place, mask=inside, other=0.0)
    mean = tl.sum(v, axis=0)[None, :] / channels
    centred = tl.where(inside, v - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0)[None, :] / channels
    scale = tl.load(weight + c, mask=c < channels, other=0.0)
    shift = tl.load(bias + c, mask=c < channels, other=0.0)
    y = centred / tl.sqrt(variance + eps) * scale + shift
    tl.store(out + start + c * length + place, y, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, channels, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))
        self.eps = eps

    def forward(self, x):
        x = x.contiguous()
        batch, channels, length = x.shape
        out = torch.empty_like(x)
        grid = (triton.cdiv(length, 16), batch)
        sizes = {"tc": triton.next_power_of_2(channels), "tl_": 16, "num_warps": 8}
        norm_kernel[grid](x, self.weight, self.bias, out, channels, length, self.eps, **sizes)
        return out
