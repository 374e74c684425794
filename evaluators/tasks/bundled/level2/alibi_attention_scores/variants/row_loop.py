# expect: slower
# analysis: The reference computes scores for the future and masks them.
# design: Loop over queries and use only their past keys.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.slope = nn.Parameter(torch.rand(heads))

    def forward(self, q, k):
        out = q.new_zeros(q.shape[:3] + (q.size(2),))
        position = torch.arange(q.size(2), device=q.device)
        q = q * q.size(3) ** -0.5
        for i in range(q.size(2)):
            bias = self.slope.view(-1, 1, 1) * (position[: i + 1] - i)
            scores = torch.matmul(q[:, :, i : i + 1], k[:, :, : i + 1].transpose(2, 3))
            out[:, :, i : i + 1, : i + 1] = torch.softmax(scores + bias, dim=-1)
        return out
