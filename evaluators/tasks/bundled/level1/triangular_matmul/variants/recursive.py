# expect: faster
# analysis: The reference multiplies many zeros above the diagonal.
# design: Split into halves recursively and skip what is zero.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def multiply(self, a, b):
        half = a.shape[0] // 2
        if half < 64:
            return torch.matmul(torch.tril(a), torch.tril(b))
        result = torch.zeros_like(a)
        result[:half, :half] = self.multiply(a[:half, :half], b[:half, :half])
        result[half:, half:] = self.multiply(a[half:, half:], b[half:, half:])
        corner = torch.matmul(a[half:, :half], torch.tril(b[:half, :half]))
        result[half:, :half] = corner.addmm_(torch.tril(a[half:, half:]), b[half:, :half])
        return result

    def forward(self, a, b):
        return self.multiply(a, b)
