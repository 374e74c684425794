import torch
import torch.nn as nn


class Model(nn.Module):
    """Linear, scale, residual with itself, clamp, then Mish weighted by the row's log-sum-exp."""

    def __init__(self, in_features, out_features, scale, limit):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = scale
        self.limit = limit

    def forward(self, x):
        y = self.linear(x)
        y = y * self.scale
        y = y + y
        y = torch.clamp(y, -self.limit, self.limit)
        total = torch.logsumexp(y, dim=1, keepdim=True)
        mish = y * torch.tanh(nn.functional.softplus(y))
        return mish * total


batch_size = 4096
in_features = 512
out_features = 4096
scale = 1.5
limit = 4.0


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features, scale, limit]
