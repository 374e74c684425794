# expect: faster
# analysis: The reference transposes twice and makes many passes over memory.
# design: Take the deviation from the norm of the centred channels.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, channels, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))
        self.eps = eps

    def forward(self, x):
        centred = x - x.mean(dim=1, keepdim=True)
        norm = torch.linalg.vector_norm(centred, dim=1, keepdim=True)
        scale = torch.rsqrt(norm * norm / x.shape[1] + self.eps)
        return torch.addcmul(self.bias.unsqueeze(1), centred.mul_(scale), self.weight.unsqueeze(1))
