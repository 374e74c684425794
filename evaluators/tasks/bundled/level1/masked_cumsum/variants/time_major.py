# expect: faster
# analysis: The reference scans along a strided dimension and masks in extra passes.
# design: Put the sequence first, so that each step adds one contiguous slice.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, mask):
        steps = (x * mask.unsqueeze(-1)).transpose(0, 1).contiguous()
        for step in range(1, steps.shape[0]):
            steps[step].add_(steps[step - 1])
        return steps.transpose(0, 1).contiguous()
