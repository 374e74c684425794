# expect: wrong
# analysis: The sum over outputs needs no full matmul.
# design: Average the weight first, then use a matrix-vector product.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, temperature):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.temperature = temperature

    def forward(self, x):
        total = torch.mv(x, self.linear.weight.mean(dim=0))
        total = (total + self.linear.bias.mean()) / self.temperature
        return x * torch.sigmoid(total).unsqueeze(1)
