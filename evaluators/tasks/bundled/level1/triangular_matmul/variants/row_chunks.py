# expect: slower
# analysis: The reference multiplies many zeros above the diagonal.
# design: Multiply a few rows at a time and join the results.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, a, b):
        a, b = torch.tril(a), torch.tril(b)
        chunks = [torch.matmul(rows, b) for rows in a.split(4)]
        return torch.cat(chunks, dim=0)
