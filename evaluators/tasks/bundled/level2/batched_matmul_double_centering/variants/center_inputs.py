# expect: faster
# analysis: Centering makes seven passes over the large score matrix.
# design: Center both small inputs before the matmul.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, a, b):
        a = (a - a.mean(dim=1, keepdim=True)) * self.scale
        b = b - b.mean(dim=1, keepdim=True)
        scaled = torch.bmm(a, b.transpose(1, 2))
        return scaled.div_(scaled.abs().add_(1))
