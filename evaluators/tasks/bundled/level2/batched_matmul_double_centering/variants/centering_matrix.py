# expect: slower
# analysis: Centering makes seven passes over the large score matrix.
# design: Center by products with a centering matrix.
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, a, b):
        n = a.size(1)
        center = torch.eye(n, device=a.device) - 1.0 / n
        scores = torch.bmm(a, b.transpose(1, 2))
        scores = torch.matmul(torch.matmul(center, scores), center)
        return F.softsign(scores * self.scale)
