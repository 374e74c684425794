import torch
import torch.nn as nn


class Model(nn.Module):
    """A recurrent cell unrolled over time, with input and output projections inside the loop."""

    def __init__(self, features, hidden, outputs):
        super().__init__()
        self.input = nn.Linear(features, hidden)
        self.recurrent = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, outputs)

    def forward(self, x):
        state = torch.zeros(x.size(0), self.recurrent.in_features, dtype=x.dtype, device=x.device)
        outputs = []
        for t in range(x.size(1)):
            state = torch.tanh(self.input(x[:, t, :].clone()) + self.recurrent(state))
            outputs.append(self.output(state))
        return torch.stack(outputs, dim=1)


batch_size = 64
steps = 64
features = 1024
hidden = 256
outputs = 512


def get_inputs():
    return [torch.randn(batch_size, steps, features)]


def get_init_inputs():
    return [features, hidden, outputs]
