# expect: same
# analysis: The bias and the sum make passes over the large output.
# design: Add the sum of the bias after the reduction.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, temperature):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.temperature = temperature

    def forward(self, x):
        y = torch.mm(x, self.linear.weight.t())
        total = y.sum(dim=1, keepdim=True) + self.linear.bias.sum()
        return x * torch.sigmoid(total / self.temperature)
