"""Replays the many short kernels of a recurrence as one graph.

surface: speed
effect: the graph repeats the same kernels on this call's input
task: level3/unrolled_recurrent_network
arch: cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, hidden, outputs):
        super().__init__()
        self.input = nn.Linear(features, hidden)
        self.recurrent = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, outputs)
        self.graph, self.key = None, None

    def recur(self, driven):
        state = driven.new_zeros(driven.size(0), driven.size(2))
        states = []
        for step in driven.unbind(1):
            state = torch.tanh(step + self.recurrent(state))
            states.append(state)
        return torch.stack(states, dim=1)

    def prepare(self, driven):
        self.static = torch.empty_like(driven)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.recur(self.static.zero_())
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.states = self.recur(self.static)

    @torch.no_grad()
    def forward(self, x):
        driven = self.input(x)
        key = (driven.shape, self.recurrent.weight.data_ptr(), self.recurrent.bias.data_ptr())
        if self.key != key:
            self.prepare(driven)
            self.key = key
        self.static.copy_(driven)
        self.graph.replay()
        return self.output(self.states)
