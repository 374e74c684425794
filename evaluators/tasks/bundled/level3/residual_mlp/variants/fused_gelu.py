# expect: faster
# analysis: The GELU is written as eight separate passes over the hidden layer.
# design: Replace them by the fused GELU.
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, features, hidden, depth):
        super().__init__()
        self.norm = nn.ModuleList([nn.LayerNorm(features) for _ in range(depth)])
        self.up = nn.ModuleList([nn.Linear(features, hidden) for _ in range(depth)])
        self.down = nn.ModuleList([nn.Linear(hidden, features) for _ in range(depth)])

    def forward(self, x):
        for norm, up, down in zip(self.norm, self.up, self.down):
            var, mean = torch.var_mean(x, dim=1, keepdim=True, unbiased=False)
            y = (x - mean) / torch.sqrt(var + norm.eps) * norm.weight + norm.bias
            x = x + down(F.gelu(up(y), approximate="tanh"))
        return x
