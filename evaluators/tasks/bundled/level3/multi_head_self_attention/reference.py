import torch
import torch.nn as nn


class Model(nn.Module):
    """Multi-head self-attention with a python loop over heads and an explicit softmax."""

    def __init__(self, features, heads):
        super().__init__()
        self.qkv = nn.Linear(features, 3 * features)
        self.out = nn.Linear(features, features)
        self.heads = heads

    def forward(self, x):
        size = x.size(2) // self.heads
        outputs = []
        for h in range(self.heads):
            q, k, v = self.qkv(x).chunk(3, dim=2)
            q, k, v = (t[:, :, h * size : (h + 1) * size].contiguous() for t in (q, k, v))
            scores = torch.bmm(q, k.transpose(1, 2)) / size**0.5
            weights = torch.exp(scores - scores.amax(dim=2, keepdim=True))
            weights = weights / weights.sum(dim=2, keepdim=True)
            outputs.append(torch.bmm(weights, v))
        return self.out(torch.cat(outputs, dim=2))


batch_size = 8
tokens = 1024
features = 512
heads = 8


def get_inputs():
    return [torch.randn(batch_size, tokens, features)]


def get_init_inputs():
    return [features, heads]
