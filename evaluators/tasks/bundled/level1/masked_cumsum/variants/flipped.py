# expect: slower
# analysis: The reference scans along a strided dimension and masks in extra passes.
# design: Subtract the sum of later elements from the total.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, mask):
        kept = x * mask.unsqueeze(-1)
        later = torch.cumsum(kept.flip(1), dim=1).flip(1)
        return kept.sum(dim=1, keepdim=True) - later + kept
