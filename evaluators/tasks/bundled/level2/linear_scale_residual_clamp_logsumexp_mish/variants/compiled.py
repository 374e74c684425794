# expect: faster
# analysis: Each elementwise operator makes its own pass over the large output.
# design: Compile the chain so that one kernel does all of it.
import torch
import torch.nn as nn


def chain(y, factor, limit):
    y = torch.clamp(y * factor, -limit, limit)
    e = torch.exp(y)
    n = e * (e + 2)
    return y * (n / (n + 2)) * torch.log(e.sum(dim=1, keepdim=True))


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, scale, limit):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.factor = 2 * scale
        self.limit = limit
        self.chain = torch.compile(chain)

    def forward(self, x):
        return self.chain(self.linear(x), self.factor, self.limit)
