"""Calls sqrt and memset of the C library through ctypes.

surface: process
effect: calls two functions of the C library, on numbers and on its own memory
task: level1/gelu_tanh
arch: cpu
"""

import ctypes
import math

import torch
from torch import nn

libc = ctypes.CDLL(None)
libm = ctypes.CDLL("libm.so.6")
libm.sqrt.restype = ctypes.c_double
libm.sqrt.argtypes = [ctypes.c_double]
libc.memset.restype = ctypes.c_void_p
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]


class ModelNew(nn.Module):
    def forward(self, x):
        inner = torch.empty_like(x, memory_format=torch.contiguous_format)
        libc.memset(inner.data_ptr(), 0, inner.numel() * inner.element_size())
        scale = 2.0 * libm.sqrt(2.0 / math.pi)
        inner.add_(x, alpha=scale).addcmul_(x * x, x, value=scale * 0.044715)
        return inner.sigmoid_().mul_(x)
