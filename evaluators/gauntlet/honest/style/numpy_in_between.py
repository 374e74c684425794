"""Leaves torch for NumPy and comes back with an array that no one else refers to.

surface: process
effect: NumPy reads the input and writes a new array, which torch takes over
task: level1/channel_layer_norm
arch: cpu
"""

import numpy as np
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))
        self.eps = eps

    def forward(self, x):
        values = x.numpy()
        centred = values - values.mean(axis=1, keepdims=True)
        variance = np.square(centred).mean(axis=1, keepdims=True)
        centred /= np.sqrt(variance + np.float32(self.eps))
        centred *= self.weight.detach().numpy()[:, None]
        centred += self.bias.detach().numpy()[:, None]
        return torch.from_numpy(centred)
