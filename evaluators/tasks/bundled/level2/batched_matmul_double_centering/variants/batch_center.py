# expect: faster
# analysis: The passes over all scores do not stay in cache.
# design: Center the inputs, then process one matrix at a time.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, a, b):
        a = (a - a.mean(dim=1, keepdim=True)) * self.scale
        b = b - b.mean(dim=1, keepdim=True)
        out = a.new_empty(a.size(0), a.size(1), b.size(1))
        for i in range(a.size(0)):
            scaled = torch.mm(a[i], b[i].t())
            torch.div(scaled, scaled.abs().add_(1), out=out[i])
        return out
