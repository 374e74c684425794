# expect: faster
# analysis: The reference multiplies many zeros above the diagonal.
# design: Multiply only the blocks that are not zero in both matrices.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, a, b):
        a, b = torch.tril(a), torch.tril(b)
        result = torch.zeros_like(a)
        for start in range(0, a.shape[0], 128):
            stop = start + 128
            for left in range(0, stop, 128):
                result[start:stop, left : left + 128] = torch.matmul(
                    a[start:stop, left:stop], b[left:stop, left : left + 128]
                )
        return result
