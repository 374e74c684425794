"""Computes what depends on weights alone once, and keeps it until their version changes.

surface: weights
effect: right for any weights, however they were changed: each change gives another version
task: level2/alibi_attention_scores
arch: cpu cuda
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.slope = nn.Parameter(torch.rand(heads))
        self.key, self.penalty = None, None

    def penalty_of(self, scores):
        key = (self.slope._version, self.slope.data_ptr(), scores.shape)
        if key != self.key:
            position = torch.arange(scores.size(2), device=scores.device)
            distance = (position.unsqueeze(1) - position).expand(scores.shape).float()
            penalty = self.slope.view(1, -1, 1, 1) * distance
            self.penalty = penalty.masked_fill(distance < 0, float("inf"))
            self.key = key
        return self.penalty

    def forward(self, q, k):
        scores = torch.einsum("bhid,bhdj->bhij", q, k.permute(0, 1, 3, 2).contiguous())
        scores = scores / q.size(3) ** 0.5
        scores = scores - self.penalty_of(scores)
        weights = torch.exp(scores - torch.amax(scores, dim=-1, keepdim=True))
        return weights / torch.sum(weights, dim=-1, keepdim=True)
