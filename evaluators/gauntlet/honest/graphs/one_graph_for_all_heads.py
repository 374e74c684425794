"""Replays the graph of a single head once for each head.

surface: memory
effect: each head is copied in and out of the same graph, in the order of the stream
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
        self.captured = {}

    def attend(self, q, k, v):
        scores = torch.bmm(q, k.transpose(1, 2)) / q.size(2) ** 0.5
        return torch.bmm(torch.softmax(scores, dim=2), v)

    def capture(self, shape, like):
        head = like.new_zeros(3, *shape)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.attend(*head)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = self.attend(*head)
        return graph, head, result

    @torch.no_grad()
    def forward(self, x):
        batch, tokens, features = x.shape
        shape = (batch, tokens, features // self.heads)
        if shape not in self.captured:
            self.captured[shape] = self.capture(shape, x)
        graph, head, result = self.captured[shape]
        split = self.qkv(x).view(batch, tokens, 3, self.heads, -1)
        outputs = torch.empty_like(split[:, :, 0], memory_format=torch.contiguous_format)
        for h in range(self.heads):
            head.copy_(split[:, :, :, h].permute(2, 0, 1, 3))
            graph.replay()
            outputs[:, :, h] = result
        return self.out(outputs.view(batch, tokens, features))
