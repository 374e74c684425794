# expect: faster
# analysis: The reference builds a large tensor of all differences.
# design: Use the fused distance kernel without a matmul and square its result.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, y):
        return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").square_()
