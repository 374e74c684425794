"""Orders the rows of the joint projection by head, so that each head's queries, keys and values are neighbours.

surface: weights
effect: the same numbers in another order, under another name, read at every call
task: level3/multi_head_self_attention
arch: cpu cuda
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, heads):
        super().__init__()
        joint = nn.Linear(features, 3 * features)
        size = features // heads
        by_head = joint.weight.detach().view(3, heads, size, features).transpose(0, 1)
        self.rows = nn.Parameter(by_head.reshape(3 * features, features).clone())
        self.row_bias = nn.Parameter(joint.bias.detach().view(3, heads, size).transpose(0, 1).reshape(-1).clone())
        self.merge = nn.Linear(features, features)
        self.heads = heads

    def forward(self, x):
        projected = F.linear(x, self.rows, self.row_bias).view(*x.shape[:2], self.heads, 3, -1)
        q, k, v = projected.permute(3, 0, 2, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v)
        return self.merge(attended.transpose(1, 2).reshape(x.shape))
