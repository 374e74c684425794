# expect: same
# analysis: The norm is written as eight separate passes.
# design: Replace them by the fused layer norm.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, hidden, depth):
        super().__init__()
        self.norm = nn.ModuleList([nn.LayerNorm(features) for _ in range(depth)])
        self.up = nn.ModuleList([nn.Linear(features, hidden) for _ in range(depth)])
        self.down = nn.ModuleList([nn.Linear(hidden, features) for _ in range(depth)])

    def forward(self, x):
        for norm, up, down in zip(self.norm, self.up, self.down):
            y = up(norm(x))
            y = 0.5 * y * (1 + torch.tanh(0.7978845608 * (y + 0.044715 * y**3)))
            x = x + down(y)
        return x
