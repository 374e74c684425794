"""Compiles penalty, mask and softmax into one pass behind a library product.

surface: compiler
effect: only the elementwise part is compiled, the mask included
task: level2/alibi_attention_scores
arch: cuda
"""

import torch
from torch import nn


@torch.compile(options={"epilogue_fusion": True}, fullgraph=True, dynamic=False)
def probabilities(scores, slope, size: float):
    position = torch.arange(scores.shape[-1], device=scores.device)
    distance = position.unsqueeze(1) - position
    scores = scores / size - slope.view(-1, 1, 1) * distance.to(scores.dtype)
    return torch.softmax(scores.masked_fill(distance < 0, float("-inf")), dim=-1)


class ModelNew(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.slope = nn.Parameter(torch.rand(heads))

    def forward(self, q, k):
        scores = torch.matmul(q, k.transpose(2, 3))
        return probabilities(scores, self.slope, q.size(3) ** 0.5)
