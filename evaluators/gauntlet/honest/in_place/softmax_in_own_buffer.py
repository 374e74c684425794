"""Computes a softmax within one intermediate of its own and never touches the input.

surface: memory
effect: only the difference, which the program made itself, is overwritten
task: level1/softmax
arch: cpu cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = x - torch.amax(x, dim=1, keepdim=True)
        y.exp_()
        y /= y.sum(dim=1, keepdim=True)
        return y
