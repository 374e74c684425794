# expect: slower
# analysis: The reference multiplies by a dense matrix that is almost all zeros.
# design: Multiply the transposed matrices and transpose back.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, diagonal, a, b):
        product = torch.matmul(b.t().contiguous(), a.t().contiguous())
        result = torch.matmul(product, torch.diag(diagonal))
        return result.t().contiguous()
