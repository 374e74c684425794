# expect: faster
# analysis: The reference makes many passes over all pairs of errors.
# design: Sum over the targets first and apply the quantile levels to the sums.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, delta):
        super().__init__()
        self.delta = delta

    def forward(self, prediction, target):
        error = target.unsqueeze(1) - prediction.unsqueeze(2)
        clamped = error.clamp(-self.delta, self.delta)
        huber = error.sub_(clamped, alpha=0.5).mul_(clamped)
        below = (huber * (clamped < 0)).sum(dim=2)
        total = huber.sum(dim=2)
        level = (torch.arange(prediction.shape[1], device=prediction.device) + 0.5) / prediction.shape[1]
        return torch.mean(level * total + (1.0 - 2.0 * level) * below) / target.shape[1]
