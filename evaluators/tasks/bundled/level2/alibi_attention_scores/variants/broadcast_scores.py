# expect: slower
# analysis: The scores are computed by an einsum over a copied key.
# design: Multiply every query with every key by broadcasting.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.slope = nn.Parameter(torch.rand(heads))

    def forward(self, q, k):
        position = torch.arange(q.size(2), device=q.device)
        distance = position - position.unsqueeze(1)
        bias = self.slope.view(-1, 1, 1) * distance
        bias = bias.masked_fill(distance > 0, float("-inf"))
        scores = (q.unsqueeze(3) * k.unsqueeze(2)).sum(dim=4)
        return torch.softmax(scores / q.size(3) ** 0.5 + bias, dim=-1)
