# expect: slower
# analysis: The passes over the whole batch do not stay in cache.
# design: Process sixteen rows at a time and join the results.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.transform = nn.Linear(features, features)
        self.gate = nn.Linear(features, features)

    def forward(self, x):
        blocks = []
        for rows in x.split(16):
            transformed = torch.tanh(self.transform(rows))
            gate = torch.sigmoid(self.gate(rows))
            blocks.append(torch.lerp(rows, transformed, gate))
        return torch.cat(blocks)
