# expect: faster
# analysis: The reference multiplies a dense matrix that is almost all zeros.
# design: Multiply only the blocks on the diagonal.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, diagonal, x):
        blocks = []
        for scale, rows in zip(diagonal.split(32), x.split(32)):
            blocks.append(torch.matmul(torch.diag(scale), rows))
        return torch.cat(blocks, dim=0)
