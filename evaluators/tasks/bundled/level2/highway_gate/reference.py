import torch
import torch.nn as nn


class Model(nn.Module):
    """Highway layer: a gate mixes a transformed input with the input itself."""

    def __init__(self, features):
        super().__init__()
        self.transform = nn.Linear(features, features)
        self.gate = nn.Linear(features, features)

    def forward(self, x):
        transformed = torch.tanh(self.transform(x))
        kept = transformed / (1 + torch.exp(-self.gate(x)))
        gate = 1 / (1 + torch.exp(-self.gate(x)))
        carried = (torch.ones_like(x) - gate) * x
        return kept + carried


batch_size = 8192
features = 1024


def get_inputs():
    return [torch.randn(batch_size, features)]


def get_init_inputs():
    return [features]
