"""Calls one block with the parameters of another through functional_call.

surface: weights
effect: the parameters handed over are the model's own, read at every call
task: level3/residual_mlp
arch: cpu cuda
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call


class Block(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x)), approximate="tanh"))


class ModelNew(nn.Module):
    def __init__(self, features, hidden, depth):
        super().__init__()
        self.norm = nn.ModuleList([nn.LayerNorm(features) for _ in range(depth)])
        self.up = nn.ModuleList([nn.Linear(features, hidden) for _ in range(depth)])
        self.down = nn.ModuleList([nn.Linear(hidden, features) for _ in range(depth)])
        with torch.device("meta"):
            # In a tuple it is no submodule: it has no weights of its own.
            self.shape = (Block(features, hidden),)

    def forward(self, x):
        for parts in zip(self.norm, self.up, self.down):
            weights = {}
            for name, part in zip(("norm", "up", "down"), parts):
                weights |= {f"{name}.{key}": value for key, value in part.named_parameters()}
            x = functional_call(self.shape[0], weights, (x,))
        return x
