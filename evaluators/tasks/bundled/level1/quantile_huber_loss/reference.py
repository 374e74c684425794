import torch
import torch.nn as nn

batch_size = 1024
quantiles = 256
targets = 256
delta = 1.0


class Model(nn.Module):
    """Mean quantile Huber loss of every predicted quantile against every target sample."""

    def __init__(self, delta):
        super().__init__()
        self.delta = delta

    def forward(self, prediction, target):
        error = target.unsqueeze(1) - prediction.unsqueeze(2)
        size = torch.abs(error)
        huber = torch.where(size <= self.delta, 0.5 * error**2, self.delta * (size - 0.5 * self.delta))
        level = (torch.arange(prediction.shape[1], device=error.device) + 0.5) / prediction.shape[1]
        weight = torch.abs(level.unsqueeze(1) - (error < 0).float())
        return torch.mean(weight * huber)


def get_inputs():
    return [torch.randn(batch_size, quantiles), torch.randn(batch_size, targets)]


def get_init_inputs():
    return [delta]
