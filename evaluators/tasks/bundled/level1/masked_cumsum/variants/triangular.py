# expect: slower
# analysis: The reference scans along a strided dimension and masks in extra passes.
# design: Fold the mask into a triangular matrix and use one matmul.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, mask):
        length = x.shape[1]
        ones = torch.ones(length, length, dtype=x.dtype, device=x.device)
        weights = torch.tril(ones) * mask.unsqueeze(1)
        return torch.matmul(weights, x)
