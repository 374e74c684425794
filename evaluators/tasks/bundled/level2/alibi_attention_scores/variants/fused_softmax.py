# expect: faster
# analysis: The softmax is written as four separate passes.
# design: Replace them by the fused softmax.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.slope = nn.Parameter(torch.rand(heads))

    def forward(self, q, k):
        scores = torch.matmul(q, k.transpose(2, 3)) / q.size(3) ** 0.5
        position = torch.arange(q.size(2), device=q.device)
        distance = (position.unsqueeze(1) - position).expand(scores.shape)
        scores = scores - self.slope.view(1, -1, 1, 1) * distance
        scores = scores.masked_fill(distance < 0, float("-inf"))
        return torch.softmax(scores, dim=-1)
