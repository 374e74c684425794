# expect: faster
# analysis: Three transposed copies move the large branches through memory.
# design: Copy only the gate and leave the value in place.
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.gate = nn.Linear(features, hidden)
        self.value = nn.Linear(features, hidden)

    def forward(self, x):
        gate = self.gate(x).transpose(1, 2).contiguous()
        gate = F.silu(gate).transpose(1, 2).contiguous()
        return gate * self.value(x)
