# expect: slower
# analysis: The reference multiplies a dense matrix that is almost all zeros.
# design: Multiply the transposed matrices and transpose back.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, diagonal, x):
        columns = x.t().contiguous()
        result = torch.matmul(columns, torch.diag(diagonal))
        return result.t().contiguous()
