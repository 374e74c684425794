# expect: faster
# analysis: The reference scans along a strided dimension and masks in extra passes.
# design: Walk along the sequence, keep a running total and stack it.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, mask):
        total = torch.zeros_like(x[:, 0])
        totals = []
        for step in (x * mask.unsqueeze(-1)).unbind(1):
            total = total + step
            totals.append(total)
        return torch.stack(totals, dim=1)
