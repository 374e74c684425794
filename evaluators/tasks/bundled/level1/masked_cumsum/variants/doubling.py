# expect: same
# analysis: The reference scans along a strided dimension and masks in extra passes.
# design: Add shifted copies with doubling distance.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, mask):
        result = x * mask.unsqueeze(-1)
        shift = 1
        while shift < x.shape[1]:
            shifted = torch.zeros_like(result)
            shifted[:, shift:] = result[:, :-shift]
            result = result + shifted
            shift *= 2
        return result
