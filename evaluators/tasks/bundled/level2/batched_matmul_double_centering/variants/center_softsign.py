# expect: faster
# analysis: Centering makes seven passes over the large score matrix.
# design: Center both small inputs and call the softsign operator.
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, a, b):
        a = a - a.mean(dim=1, keepdim=True)
        b = b - b.mean(dim=1, keepdim=True)
        scores = torch.bmm(a, b.transpose(1, 2))
        return F.softsign(scores * self.scale)
