"""Brings its own autograd function, whose backward pass recomputes what it needs.

surface: compiler
effect: an own backward pass beside a forward pass that is the reference's
task: level1/gelu_tanh
arch: cpu cuda
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Gelu(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return F.gelu(x, approximate="tanh")

    @staticmethod
    def backward(context, gradient):
        (x,) = context.saved_tensors
        scale = math.sqrt(2.0 / math.pi)
        tanh = torch.tanh(scale * (x + 0.044715 * x**3))
        slope = 0.5 * x * (1 - tanh * tanh) * scale * (1 + 3 * 0.044715 * x * x)
        return gradient * (0.5 * (1 + tanh) + slope)


class ModelNew(nn.Module):
    def forward(self, x):
        return Gelu.apply(x)
