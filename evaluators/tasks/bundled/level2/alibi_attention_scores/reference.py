import torch
import torch.nn as nn


class Model(nn.Module):
    """Causal attention probabilities with a learned linear distance penalty per head."""

    def __init__(self, heads):
        super().__init__()
        self.slope = nn.Parameter(torch.rand(heads))

    def forward(self, q, k):
        length = q.size(2)
        scores = torch.einsum("bhid,bhdj->bhij", q, k.permute(0, 1, 3, 2).contiguous())
        scores = scores / q.size(3) ** 0.5
        position = torch.arange(length, device=q.device)
        distance = (position.unsqueeze(1) - position).expand(scores.shape).float()
        scores = scores - self.slope.view(1, -1, 1, 1) * distance
        scores = scores.masked_fill(distance < 0, float("-inf"))
        weights = torch.exp(scores - torch.amax(scores, dim=-1, keepdim=True))
        return weights / torch.sum(weights, dim=-1, keepdim=True)


batch_size = 8
heads = 16
length = 512
head_size = 64


def get_inputs():
    return [torch.randn(batch_size, heads, length, head_size) for _ in range(2)]


def get_init_inputs():
    return [heads]
