# expect: slower
# analysis: The reference makes many passes over all pairs of errors.
# design: Loop over the quantiles and add up their losses.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, delta):
        super().__init__()
        self.delta = delta

    def forward(self, prediction, target):
        count = prediction.shape[1]
        total = 0.0
        for index in range(count):
            error = target - prediction[:, index : index + 1]
            size = torch.abs(error)
            huber = torch.where(size <= self.delta, 0.5 * error**2, self.delta * (size - 0.5 * self.delta))
            weight = torch.abs((index + 0.5) / count - (error < 0).float())
            total = total + torch.mean(weight * huber)
        return total / count
