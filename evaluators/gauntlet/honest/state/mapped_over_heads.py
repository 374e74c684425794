"""Maps the attention of one head over all heads by vmap.

surface: task
effect: vmap writes the loop over heads as one batched product
task: level3/multi_head_self_attention
arch: cpu cuda
"""

import torch
from torch import nn


def attend(q, k, v):
    weights = torch.softmax(torch.bmm(q, k.transpose(1, 2)) / q.size(2) ** 0.5, dim=2)
    return torch.bmm(weights, v)


class ModelNew(nn.Module):
    def __init__(self, features, heads):
        super().__init__()
        self.qkv = nn.Linear(features, 3 * features)
        self.out = nn.Linear(features, features)
        self.heads = heads

    def forward(self, x):
        shape = (*x.shape[:2], self.heads, x.size(2) // self.heads)
        q, k, v = (part.reshape(shape) for part in self.qkv(x).chunk(3, dim=2))
        y = torch.func.vmap(attend, in_dims=2, out_dims=2)(q, k, v)
        return self.out(y.reshape(x.shape))
