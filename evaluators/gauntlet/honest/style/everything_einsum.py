"""Writes every product of an attention layer as an einsum.

surface: task
effect: einsum names the same products
task: level3/multi_head_self_attention
arch: cpu cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, heads):
        super().__init__()
        self.qkv = nn.Linear(features, 3 * features)
        self.out = nn.Linear(features, features)
        self.heads = heads

    def forward(self, x):
        size = x.size(2) // self.heads
        weight = self.qkv.weight.view(3, self.heads, size, x.size(2))
        bias = self.qkv.bias.view(3, 1, self.heads, 1, size)
        q, k, v = torch.einsum("btf,chsf->cbhts", x, weight) + bias
        scores = torch.einsum("bhis,bhjs->bhij", q, k) * size**-0.5
        y = torch.einsum("bhij,bhjs->bhis", scores.softmax(dim=3), v)
        out = self.out.weight.view(x.size(2), self.heads, size)
        return torch.einsum("bhis,fhs->bif", y, out).contiguous() + self.out.bias
