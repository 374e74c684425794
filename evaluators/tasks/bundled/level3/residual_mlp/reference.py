import torch
import torch.nn as nn


class Model(nn.Module):
    """A stack of pre-norm residual blocks (norm, linear, GELU, linear) written operator by operator."""

    def __init__(self, features, hidden, depth):
        super().__init__()
        self.norm = nn.ModuleList([nn.LayerNorm(features) for _ in range(depth)])
        self.up = nn.ModuleList([nn.Linear(features, hidden) for _ in range(depth)])
        self.down = nn.ModuleList([nn.Linear(hidden, features) for _ in range(depth)])

    def forward(self, x):
        for norm, up, down in zip(self.norm, self.up, self.down):
            mean = x.mean(dim=1, keepdim=True)
            var = ((x - mean) ** 2).mean(dim=1, keepdim=True)
            y = (x - mean) / torch.sqrt(var + norm.eps) * norm.weight + norm.bias
            y = up(y)
            y = 0.5 * y * (1 + torch.tanh(0.7978845608 * (y + 0.044715 * y * y * y)))
            x = x + down(y)
        return x


batch_size = 8192
features = 256
hidden = 1024
depth = 4


def get_inputs():
    return [torch.randn(batch_size, features)]


def get_init_inputs():
    return [features, hidden, depth]
