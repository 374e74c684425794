"""Centers the two small factors instead of the large product, three reductions fewer.

surface: speed
effect: holds for every input: the means of a product are products of means
task: level2/batched_matmul_double_centering
arch: cpu cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, a, b):
        a = (a - a.mean(dim=1, keepdim=True)) * self.scale
        b = b - b.mean(dim=1, keepdim=True)
        return F.softsign(torch.bmm(a, b.transpose(1, 2)))
