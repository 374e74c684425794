# expect: faster
# analysis: Each elementwise operator allocates and writes a new tensor.
# design: Subtract the means in place on the scores.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, a, b):
        scores = torch.bmm(a, b.transpose(1, 2))
        scores.sub_(scores.mean(dim=2, keepdim=True))
        scores.sub_(scores.mean(dim=1, keepdim=True))
        scores.mul_(self.scale)
        return scores.div_(scores.abs().add_(1))
