# expect: same
# analysis: The reference multiplies many zeros above the diagonal.
# design: Build masks and multiply by them around one matmul.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, a, b):
        index = torch.arange(a.shape[0], device=a.device)
        mask = (index.unsqueeze(1) >= index).to(a.dtype)
        product = torch.einsum("ik,kj->ij", a * mask, b * mask)
        return product * mask
