# expect: faster
# analysis: The reference makes many passes over all pairs of errors.
# design: Clamp the error once, which gives both branches of the loss.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, delta):
        super().__init__()
        self.delta = delta

    def forward(self, prediction, target):
        error = target.unsqueeze(1) - prediction.unsqueeze(2)
        clamped = error.clamp(-self.delta, self.delta)
        huber = clamped * (error - 0.5 * clamped)
        level = (torch.arange(prediction.shape[1], device=prediction.device) + 0.5) / prediction.shape[1]
        weight = torch.where(error < 0, 1.0 - level.unsqueeze(1), level.unsqueeze(1))
        return torch.mean(weight * huber)
