# expect: faster
# analysis: Every head repeats the projection of the whole input.
# design: Project once before the loop and use the fused softmax.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, heads):
        super().__init__()
        self.qkv = nn.Linear(features, 3 * features)
        self.out = nn.Linear(features, features)
        self.heads = heads

    def forward(self, x):
        outputs = []
        q, k, v = (t.chunk(self.heads, dim=2) for t in self.qkv(x).chunk(3, dim=2))
        for query, key, value in zip(q, k, v):
            scores = torch.bmm(query, key.transpose(1, 2)) * query.size(2) ** -0.5
            outputs.append(torch.bmm(torch.softmax(scores, dim=2), value))
        return self.out(torch.cat(outputs, dim=2))
