# expect: faster
# analysis: The sum over outputs needs no full matmul.
# design: Add the four quarters of the weight, then use a smaller matmul.
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, temperature):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.temperature = temperature

    def forward(self, x):
        parts = self.linear.weight.chunk(4)
        weight = parts[0] + parts[1] + parts[2] + parts[3]
        total = F.linear(x, weight).sum(dim=1, keepdim=True)
        total = total + self.linear.bias.sum()
        return x * torch.sigmoid(total / self.temperature)
