# expect: faster
# analysis: The distance penalty and the mask are expanded to every head and batch.
# design: Build one small bias, then use the fused softmax.
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
        scores = torch.matmul(q * q.size(3) ** -0.5, k.transpose(2, 3)).add_(bias)
        return torch.softmax(scores, dim=-1)
