# expect: slower
# analysis: The reference makes many passes over all pairs of errors.
# design: Compute the loss in double precision and convert back.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, delta):
        super().__init__()
        self.delta = delta

    def forward(self, prediction, target):
        error = target.double().unsqueeze(1) - prediction.double().unsqueeze(2)
        size = torch.abs(error)
        huber = torch.where(size <= self.delta, 0.5 * error**2, self.delta * (size - 0.5 * self.delta))
        level = (torch.arange(prediction.shape[1], device=prediction.device) + 0.5) / prediction.shape[1]
        weight = torch.abs(level.unsqueeze(1) - (error < 0).double())
        return torch.mean(weight * huber).float()
