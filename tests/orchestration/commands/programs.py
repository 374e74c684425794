"""Programs that the tests of several commands judge."""

SHIFT = """
import torch
import torch.nn as nn

rows = 64


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x) + 1


def get_inputs():
    return [torch.randn(rows, 512)]


def get_init_inputs():
    return []
"""

SHIFTED_IN_PLACE = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x).add_(1)
"""
