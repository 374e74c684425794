# expect: wrong
# analysis: The gate is computed twice, once for each branch.
# design: Compute the gate once and mix both branches with lerp.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.transform = nn.Linear(features, features)
        self.gate = nn.Linear(features, features)

    def forward(self, x):
        transformed = self.transform(x).tanh_()
        gate = self.gate(x).sigmoid_()
        return torch.lerp(transformed, x, gate)
