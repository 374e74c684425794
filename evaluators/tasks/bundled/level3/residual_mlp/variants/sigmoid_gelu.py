# expect: faster
# analysis: The GELU is written as eight separate passes over the hidden layer.
# design: Write the GELU as a product with a sigmoid.
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
            gate = y.square().mul_(0.0713548162726).add_(1.5957691216).mul_(y)
            x = x + down(y.mul_(gate.sigmoid_()))
        return x
