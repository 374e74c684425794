"""Fills a masked copy and scans it in place.

surface: inputs
effect: the masked copy is a new tensor, and the scan runs within it
task: level1/masked_cumsum
arch: cpu cuda
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, mask):
        kept = x.masked_fill(~mask.unsqueeze(-1), 0.0)
        return kept.cumsum_(dim=1)
