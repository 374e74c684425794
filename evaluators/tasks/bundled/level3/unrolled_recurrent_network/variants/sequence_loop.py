# expect: slower
# analysis: Input and output projections are small matmuls inside the loop.
# design: Run each sequence alone with its projections outside the loop.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, hidden, outputs):
        super().__init__()
        self.input = nn.Linear(features, hidden)
        self.recurrent = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, outputs)

    def forward(self, x):
        outputs = []
        for sequence in self.input(x):
            state = x.new_zeros(self.recurrent.in_features)
            states = []
            for step in sequence:
                state = torch.tanh(step + self.recurrent(state))
                states.append(state)
            outputs.append(self.output(torch.stack(states)))
        return torch.stack(outputs)
