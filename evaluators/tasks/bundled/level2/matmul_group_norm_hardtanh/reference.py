import torch
import torch.nn as nn


class Model(nn.Module):
    """Matmul, group normalisation over the features, then a hard tanh."""

    def __init__(self, in_features, out_features, num_groups, limit):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(in_features, out_features) / in_features**0.5)
        self.gamma = nn.Parameter(torch.randn(out_features))
        self.beta = nn.Parameter(torch.randn(out_features))
        self.num_groups = num_groups
        self.limit = limit

    def forward(self, x):
        y = torch.matmul(x, self.weight)
        groups = y.view(y.size(0), self.num_groups, -1)
        mean = torch.mean(groups, dim=2, keepdim=True)
        var = torch.mean((groups - mean) ** 2, dim=2, keepdim=True)
        y = ((groups - mean) / torch.sqrt(var + 1e-5)).reshape(y.shape)
        y = y * self.gamma + self.beta
        y = torch.where(y > self.limit, torch.full_like(y, self.limit), y)
        return torch.where(y < -self.limit, torch.full_like(y, -self.limit), y)


batch_size = 4096
in_features = 512
out_features = 4096
num_groups = 32
limit = 2.0


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features, num_groups, limit]
