# expect: same
# analysis: The reference scans along a strided dimension and masks in extra passes.
# design: Move the sequence last, so that the scan reads memory in order.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, mask):
        kept = (x * mask.unsqueeze(-1)).transpose(1, 2).contiguous()
        return torch.cumsum(kept, dim=2).transpose(1, 2).contiguous()
