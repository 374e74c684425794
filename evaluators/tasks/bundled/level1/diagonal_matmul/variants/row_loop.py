# expect: faster
# analysis: The reference multiplies a dense matrix that is almost all zeros.
# design: Scale one row at a time into a new buffer.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, diagonal, x):
        result = torch.empty_like(x)
        for row in range(x.shape[0]):
            torch.mul(x[row], diagonal[row], out=result[row])
        return result
