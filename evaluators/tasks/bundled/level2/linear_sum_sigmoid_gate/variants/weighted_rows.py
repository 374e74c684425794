# expect: faster
# analysis: The sum over outputs needs no full matmul.
# design: Sum the weight, multiply it with the rows and reduce them.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, temperature):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.temperature = temperature

    def forward(self, x):
        weight = self.linear.weight.sum(dim=0, keepdim=True)
        total = (x * weight).sum(dim=1, keepdim=True)
        total = total + self.linear.bias.sum()
        return x * torch.sigmoid(total / self.temperature)
