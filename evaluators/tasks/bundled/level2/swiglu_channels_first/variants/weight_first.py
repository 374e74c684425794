# expect: same
# analysis: The transposed copies follow each matmul.
# design: Put the weight first so that outputs are channels-first.
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.gate = nn.Linear(features, hidden)
        self.value = nn.Linear(features, hidden)

    def forward(self, x):
        x = x.transpose(1, 2)
        gate = torch.matmul(self.gate.weight, x) + self.gate.bias.unsqueeze(1)
        value = torch.matmul(self.value.weight, x) + self.value.bias.unsqueeze(1)
        y = F.silu(gate) * value
        return y.transpose(1, 2).contiguous()
