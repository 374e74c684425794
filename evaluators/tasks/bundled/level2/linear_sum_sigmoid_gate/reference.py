import torch
import torch.nn as nn


class Model(nn.Module):
    """Gates every row of the input by the sum of a linear layer's outputs."""

    def __init__(self, in_features, out_features, temperature):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.temperature = temperature

    def forward(self, x):
        y = self.linear(x)
        total = torch.sum(y, dim=1, keepdim=True)
        gate = torch.sigmoid(total / self.temperature)
        return x * gate


batch_size = 4096
in_features = 1024
out_features = 4096
temperature = 16.0


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features, temperature]
