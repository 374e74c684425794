"""Takes another path for half precision than for single precision.

surface: task
effect: narrow types take the wider path; all give the reference's type
task: level1/softmax
arch: cpu cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        if x.dtype in (torch.float16, torch.bfloat16):
            return torch.softmax(x.float(), dim=1).to(x.dtype)
        if x.dtype == torch.float32:
            return torch.softmax(x, dim=1)
        y = torch.exp(x - x.amax(dim=1, keepdim=True))
        return y / y.sum(dim=1, keepdim=True)
