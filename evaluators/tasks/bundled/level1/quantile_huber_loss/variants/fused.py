# expect: faster
# analysis: The reference makes many passes over all pairs of errors.
# design: Use the fused Huber loss for the errors, then apply the weights.
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, delta):
        super().__init__()
        self.delta = delta

    def forward(self, prediction, target):
        rows, columns = torch.broadcast_tensors(prediction.unsqueeze(2), target.unsqueeze(1))
        huber = F.huber_loss(rows, columns, reduction="none", delta=self.delta)
        level = (torch.arange(prediction.shape[1], device=prediction.device) + 0.5) / prediction.shape[1]
        weight = torch.where(columns < rows, 1.0 - level.unsqueeze(1), level.unsqueeze(1))
        return torch.mean(weight * huber)
