# expect: faster
# analysis: The reference scans along a strided dimension and masks in extra passes.
# design: Walk along the sequence and add one step at a time.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, mask):
        result = x * mask.unsqueeze(-1)
        for step in range(1, x.shape[1]):
            result[:, step] += result[:, step - 1]
        return result
