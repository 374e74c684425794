"""Works on half of the batch on a second stream and joins it.

surface: streams
effect: the side stream waits for the current one, and the current one for it
task: level3/multi_head_self_attention
arch: cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, heads):
        super().__init__()
        self.qkv = nn.Linear(features, 3 * features)
        self.out = nn.Linear(features, features)
        self.heads = heads
        self.side = None

    def attend(self, x):
        shape = (*x.shape[:2], 3, self.heads, x.size(2) // self.heads)
        q, k, v = self.qkv(x).view(shape).permute(2, 0, 3, 1, 4)
        scores = torch.matmul(q, k.transpose(2, 3)) / q.size(3) ** 0.5
        y = torch.matmul(torch.softmax(scores, dim=3), v)
        return self.out(y.transpose(1, 2).reshape(x.shape))

    def forward(self, x):
        if x.size(0) < 2:
            return self.attend(x)
        self.side = self.side or torch.cuda.Stream()
        current = torch.cuda.current_stream()
        first, second = x.chunk(2)
        self.side.wait_stream(current)
        with torch.cuda.stream(self.side):
            late = self.attend(second)
        early = self.attend(first)
        current.wait_stream(self.side)
        late.record_stream(current)
        return torch.cat([early, late])
