# expect: faster
# analysis: The reference computes scores for the future and masks them.
# design: Process blocks of queries with only their past keys.
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
        out = q.new_zeros(q.shape[:3] + (q.size(2),))
        q = q * q.size(3) ** -0.5
        for i in range(0, q.size(2), 32):
            j = i + 32
            scores = torch.matmul(q[:, :, i:j], k[:, :, :j].transpose(2, 3))
            scores.add_(bias[:, i:j, :j])
            out[:, :, i:j, :j] = torch.softmax(scores, dim=-1)
        return out
