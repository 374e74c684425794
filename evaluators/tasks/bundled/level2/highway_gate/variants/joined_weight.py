# expect: faster
# analysis: Three matmuls read the same input.
# design: Join both weights into one matmul and mix with lerp.
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.transform = nn.Linear(features, features)
        self.gate = nn.Linear(features, features)

    def forward(self, x):
        weight = torch.cat([self.transform.weight, self.gate.weight])
        bias = torch.cat([self.transform.bias, self.gate.bias])
        transformed, gate = F.linear(x, weight, bias).chunk(2, dim=1)
        return torch.lerp(x, torch.tanh(transformed), torch.sigmoid(gate))
