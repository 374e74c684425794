"""Keeps the initial state, which is zero, in a buffer outside of the state_dict.

surface: memory
effect: the initial state is a constant that nothing writes to
task: level3/unrolled_recurrent_network
arch: cpu cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, hidden, outputs):
        super().__init__()
        self.input = nn.Linear(features, hidden)
        self.recurrent = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, outputs)
        self.register_buffer("initial", torch.zeros(1, hidden), persistent=False)

    def forward(self, x):
        driven = self.input(x)
        state = self.initial.expand(x.size(0), -1)
        states = []
        for step in driven.unbind(1):
            state = torch.tanh(step + self.recurrent(state))
            states.append(state)
        return self.output(torch.stack(states, dim=1))
