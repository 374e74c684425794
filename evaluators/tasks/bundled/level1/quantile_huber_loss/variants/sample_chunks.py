# expect: faster
# analysis: The reference makes many passes over all pairs of errors.
# design: Work on a few samples at a time, so that errors stay in cache.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, delta):
        super().__init__()
        self.delta = delta

    def forward(self, prediction, target):
        level = (torch.arange(prediction.shape[1], device=prediction.device) + 0.5) / prediction.shape[1]
        upper, lower = level.unsqueeze(1), 1.0 - level.unsqueeze(1)
        total = 0.0
        for rows, columns in zip(prediction.split(8), target.split(8)):
            error = columns.unsqueeze(1) - rows.unsqueeze(2)
            clamped = error.clamp(-self.delta, self.delta)
            weight = torch.where(error < 0, lower, upper)
            total = total + error.sub_(clamped, alpha=0.5).mul_(clamped).mul_(weight).sum()
        return total / (prediction.numel() * target.shape[1])
