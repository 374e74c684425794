"""Keeps a graph for the last shape alone and captures again when the shape changes.

surface: weights
effect: kernels in the graph read the parameters where they lie, at every replay
task: level3/small_convnet
arch: cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, in_channels, channels, classes):
        super().__init__()
        self.stem = nn.Conv2d(in_channels, channels, 3, padding=1)
        self.expand = nn.Conv2d(channels, 4 * channels, 1)
        self.mix = nn.Conv2d(4 * channels, 4 * channels, 1)
        self.head = nn.Linear(4 * channels, classes)
        self.key = None

    def compute(self, x):
        x = F.avg_pool2d(torch.relu(self.stem(x)), 2)
        x = torch.relu(self.expand(x)).mean(dim=(2, 3), keepdim=True)
        return self.head(self.mix(x).flatten(1))

    @torch.no_grad()
    def forward(self, x):
        key = (x.shape, tuple(one.data_ptr() for one in self.parameters()))
        if key != self.key:
            self.static = x.clone()
            for _ in range(3):
                self.compute(self.static)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.result = self.compute(self.static)
            self.key = key
        self.static.copy_(x)
        self.graph.replay()
        return self.result.clone()
