# expect: faster
# analysis: The reference makes many passes over all pairs of errors.
# design: Clamp the positive and negative parts apart, so that no mask is needed.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, delta):
        super().__init__()
        self.delta = delta

    def side(self, error):
        clamped = error.clamp(0.0, self.delta)
        return error.clamp_(min=0.0).sub_(clamped, alpha=0.5).mul_(clamped).sum(dim=2)

    def forward(self, prediction, target):
        above = self.side(target.unsqueeze(1) - prediction.unsqueeze(2))
        below = self.side(prediction.unsqueeze(2) - target.unsqueeze(1))
        level = (torch.arange(prediction.shape[1], device=prediction.device) + 0.5) / prediction.shape[1]
        return torch.mean(level * above + (1.0 - level) * below) / target.shape[1]
