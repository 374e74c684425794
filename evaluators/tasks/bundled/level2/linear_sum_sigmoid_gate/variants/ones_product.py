# expect: faster
# analysis: The sum over outputs needs no full matmul.
# design: Sum the weight by a product with ones.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, temperature):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.temperature = temperature

    def forward(self, x):
        weight, bias = self.linear.weight, self.linear.bias
        ones = torch.ones_like(bias)
        total = torch.mv(x, torch.mv(weight.t(), ones)).add_(bias.sum())
        return x * total.div_(self.temperature).sigmoid_().unsqueeze(1)
