"""Keeps scores, penalties and probabilities of attention in one buffer of its own.

surface: memory
effect: scores, mask and probabilities share the buffer of the product
task: level2/alibi_attention_scores
arch: cpu cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.slope = nn.Parameter(torch.rand(heads))

    def forward(self, q, k):
        length = q.size(2)
        position = torch.arange(length, device=q.device)
        distance = position.unsqueeze(1) - position
        future = distance < 0
        scores = torch.matmul(q, k.transpose(2, 3)).div_(q.size(3) ** 0.5)
        scores.addcmul_(self.slope.view(-1, 1, 1), distance.to(q.dtype), value=-1)
        scores.masked_fill_(future, float("-inf"))
        scores.sub_(scores.amax(dim=-1, keepdim=True)).exp_()
        return scores.div_(scores.sum(dim=-1, keepdim=True))
