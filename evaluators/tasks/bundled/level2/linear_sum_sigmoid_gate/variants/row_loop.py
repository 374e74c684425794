# expect: slower
# analysis: The linear layer writes a large output that is only summed.
# design: Process eight rows at a time so that they stay in cache.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, temperature):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.temperature = temperature

    def forward(self, x):
        out = torch.empty_like(x)
        for i in range(0, x.size(0), 8):
            rows = x[i : i + 8]
            total = self.linear(rows).sum(dim=1, keepdim=True)
            out[i : i + 8] = rows * torch.sigmoid(total / self.temperature)
        return out
