"""Captures a CUDA graph at the first call of a shape and replays it on copied inputs.

surface: memory
effect: inputs are copied in at every call, the output is cloned, weights are read anew
task: level3/residual_mlp
arch: cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, hidden, depth):
        super().__init__()
        self.norm = nn.ModuleList([nn.LayerNorm(features) for _ in range(depth)])
        self.up = nn.ModuleList([nn.Linear(features, hidden) for _ in range(depth)])
        self.down = nn.ModuleList([nn.Linear(hidden, features) for _ in range(depth)])
        self.graphs = {}

    def compute(self, x):
        for norm, up, down in zip(self.norm, self.up, self.down):
            x = x + down(F.gelu(up(norm(x)), approximate="tanh"))
        return x

    def capture(self, x):
        static, side = x.clone(), torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.compute(static)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = self.compute(static)
        return graph, static, result

    @torch.no_grad()
    def forward(self, x):
        # Weights that moved elsewhere need another graph; those changed in place do not.
        key = (x.shape, x.dtype, *(one.data_ptr() for one in self.parameters()))
        if key not in self.graphs:
            self.graphs[key] = self.capture(x)
        graph, static, result = self.graphs[key]
        static.copy_(x)
        graph.replay()
        return result.clone()
