# expect: faster
# analysis: The reference multiplies many zeros above the diagonal.
# design: Split into halves and skip the quarter that is zero.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, a, b):
        a, b = torch.tril(a), torch.tril(b)
        half = a.shape[0] // 2
        result = torch.zeros_like(a)
        result[:half, :half] = torch.matmul(a[:half, :half], b[:half, :half])
        result[half:, :half] = torch.matmul(a[half:], b[:, :half])
        result[half:, half:] = torch.matmul(a[half:, half:], b[half:, half:])
        return result
