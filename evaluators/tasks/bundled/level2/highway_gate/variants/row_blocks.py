# expect: faster
# analysis: The passes over the whole batch do not stay in cache.
# design: Process blocks of rows, with the gate computed once.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.transform = nn.Linear(features, features)
        self.gate = nn.Linear(features, features)

    def forward(self, x):
        blocks = []
        for rows in x.split(256):
            transformed = self.transform(rows).tanh_()
            gate = self.gate(rows).sigmoid_()
            blocks.append(torch.lerp(rows, transformed, gate))
        return torch.cat(blocks)
