# expect: faster
# analysis: The distance penalty and the mask are expanded to every head and batch.
# design: Softmax ignores row constants, so penalise only the key position.
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.slope = nn.Parameter(torch.rand(heads))

    def forward(self, q, k):
        position = torch.arange(q.size(2), device=q.device)
        bias = self.slope.view(-1, 1, 1) * position
        future = position > position.unsqueeze(1)
        scores = torch.matmul(q * q.size(3) ** -0.5, k.transpose(2, 3)).add_(bias)
        return torch.softmax(scores.masked_fill_(future, float("-inf")), dim=-1)
