# expect: faster
# analysis: The distance penalty and the mask are expanded to every head and batch.
# design: Build one small bias and add it inside the matmul.
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
        bias = bias.expand(q.size(0), -1, -1, -1).flatten(0, 1)
        k = k.flatten(0, 1).transpose(1, 2)
        scores = torch.baddbmm(bias, q.flatten(0, 1), k, alpha=q.size(3) ** -0.5)
        return torch.softmax(scores, dim=-1).view(q.shape[:3] + (-1,))
