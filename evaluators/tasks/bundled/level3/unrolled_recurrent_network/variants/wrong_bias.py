# expect: wrong
# analysis: Input and output projections are small matmuls inside the loop.
# design: Project all steps at once before and after the loop.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, hidden, outputs):
        super().__init__()
        self.input = nn.Linear(features, hidden)
        self.recurrent = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, outputs)

    def forward(self, x):
        state = x.new_zeros(x.size(0), self.recurrent.in_features)
        weight = self.recurrent.weight.t()
        states = []
        for step in self.input(x).unbind(1):
            state = torch.addmm(step, state, weight).tanh_()
            states.append(state)
        return self.output(torch.stack(states, dim=1))
