"""Keeps a table of distances and masks for each length, as many models do.

surface: memory
effect: the table depends on the length alone, not on values or weights
task: level2/alibi_attention_scores
arch: cpu cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.slope = nn.Parameter(torch.rand(heads))
        self.tables = {}

    def distance(self, length, like):
        key = (length, like.device, like.dtype)
        if key not in self.tables:
            position = torch.arange(length, device=like.device)
            distance = (position.unsqueeze(1) - position).to(like.dtype)
            self.tables[key] = distance, distance < 0
        return self.tables[key]

    def forward(self, q, k):
        distance, future = self.distance(q.size(2), q)
        penalty = (self.slope.view(-1, 1, 1) * distance).masked_fill_(future, float("inf"))
        scores = torch.matmul(q, k.transpose(2, 3)).div_(q.size(3) ** 0.5).sub_(penalty)
        return torch.softmax(scores, dim=-1)
