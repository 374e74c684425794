# expect: faster
# analysis: Every head repeats the projection of the whole input.
# design: Project each head with its own rows of the weight.
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, features, heads):
        super().__init__()
        self.qkv = nn.Linear(features, 3 * features)
        self.out = nn.Linear(features, features)
        self.heads = heads

    def forward(self, x):
        outputs = []
        weight = self.qkv.weight.unflatten(0, (3, self.heads, -1))
        bias = self.qkv.bias.unflatten(0, (3, self.heads, -1))
        for h in range(self.heads):
            q, k, v = (F.linear(x, weight[i, h], bias[i, h]) for i in range(3))
            scores = torch.bmm(q, k.transpose(1, 2)) / q.size(2) ** 0.5
            weights = torch.exp(scores - scores.amax(dim=2, keepdim=True))
            weights = weights / weights.sum(dim=2, keepdim=True)
            outputs.append(torch.bmm(weights, v))
        return self.out(torch.cat(outputs, dim=2))
