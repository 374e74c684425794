"""Stacks the weights of all blocks along a new dimension, transposed, beside a buffer of its own.

surface: weights
effect: the reference's parameters in fewer, larger tensors; the buffer is workspace and holds no result
task: level3/residual_mlp
arch: cpu cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


def stacked(layers, name):
    values = [getattr(layer, name).detach() for layer in layers]
    return nn.Parameter(torch.stack([one.t().contiguous() if one.dim() == 2 else one for one in values]))


class ModelNew(nn.Module):
    def __init__(self, features, hidden, depth):
        super().__init__()
        norm = [nn.LayerNorm(features) for _ in range(depth)]
        up = [nn.Linear(features, hidden) for _ in range(depth)]
        down = [nn.Linear(hidden, features) for _ in range(depth)]
        self.scale, self.shift = stacked(norm, "weight"), stacked(norm, "bias")
        self.up, self.up_bias = stacked(up, "weight"), stacked(up, "bias")
        self.down, self.down_bias = stacked(down, "weight"), stacked(down, "bias")
        self.register_buffer("workspace", torch.empty(1, hidden))
        self.eps = norm[0].eps

    def forward(self, x):
        if self.workspace.size(0) != x.size(0):
            self.workspace = x.new_empty(x.size(0), self.up.size(2))
        for block in range(self.up.size(0)):
            y = F.layer_norm(x, x.shape[1:], self.scale[block], self.shift[block], self.eps)
            torch.addmm(self.up_bias[block], y, self.up[block], out=self.workspace)
            y = F.gelu(self.workspace, approximate="tanh")
            x = x + torch.addmm(self.down_bias[block], y, self.down[block])
        return x
