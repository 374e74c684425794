# expect: faster
# analysis: The reference scans along a strided dimension and masks in extra passes.
# design: Scan small blocks with a triangular matmul, then add the totals before each.
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, mask):
        batch, length, channels = x.shape
        extra = -length % 16
        rows = F.pad(x, (0, 0, 0, extra)).view(-1, 16, channels)
        kept = F.pad(mask, (0, extra)).view(-1, 1, 16)
        weights = torch.tril(torch.ones(16, 16, dtype=x.dtype, device=x.device)) * kept
        sums = torch.bmm(weights, rows).view(batch, -1, 16, channels)
        totals = torch.cumsum(sums[:, :, -1], dim=1)
        sums[:, 1:] += totals[:, :-1].unsqueeze(2)
        return sums.view(batch, -1, channels)[:, :length].contiguous()
