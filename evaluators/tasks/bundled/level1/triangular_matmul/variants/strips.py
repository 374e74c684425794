# expect: faster
# analysis: The reference multiplies many zeros above the diagonal.
# design: Multiply strips of rows by the part of the matrix that is not zero.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, a, b):
        a, b = torch.tril(a), torch.tril(b)
        result = torch.zeros_like(a)
        for start in range(0, a.shape[0], 64):
            stop = start + 64
            result[start:stop, :stop] = torch.matmul(a[start:stop, :stop], b[:stop, :stop])
        return result
