# expect: slower
# analysis: The reference multiplies a dense matrix that is almost all zeros.
# design: Multiply in double precision and convert back.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, diagonal, x):
        result = torch.matmul(torch.diag(diagonal.double()), x.double())
        return result.float()
