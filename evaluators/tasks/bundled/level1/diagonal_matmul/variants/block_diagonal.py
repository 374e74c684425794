# expect: faster
# analysis: The reference multiplies by a dense matrix that is almost all zeros.
# design: Multiply only the blocks on the diagonal.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, diagonal, a, b):
        product = torch.matmul(a, b)
        blocks = []
        for scale, rows in zip(diagonal.split(32), product.split(32)):
            blocks.append(torch.matmul(torch.diag(scale), rows))
        return torch.cat(blocks, dim=0)
