# expect: faster
# analysis: The reference makes many passes over all pairs of errors.
# design: Let torch.compile fuse all passes into one loop.
import torch
import torch.nn as nn


@torch.compile
def loss(prediction, target, level, delta):
    error = target.unsqueeze(1) - prediction.unsqueeze(2)
    clamped = error.clamp(-delta, delta)
    huber = clamped * (error - 0.5 * clamped)
    weight = torch.where(error < 0, 1.0 - level.unsqueeze(1), level.unsqueeze(1))
    return (weight * huber).sum(dim=2).mean() / target.shape[1]


class ModelNew(nn.Module):
    def __init__(self, delta):
        super().__init__()
        self.delta = delta

    def forward(self, prediction, target):
        level = (torch.arange(prediction.shape[1], device=prediction.device) + 0.5) / prediction.shape[1]
        return loss(prediction, target, level, self.delta)
