# expect: faster
# analysis: The reference scans along a strided dimension and masks in extra passes.
# design: Walk along blocks with a triangular matmul and carry the last sum over.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, mask):
        ones = torch.ones(32, 32, dtype=x.dtype, device=x.device)
        result = torch.empty_like(x)
        carry = torch.zeros_like(x[:, :1])
        for start in range(0, x.shape[1], 32):
            rows = x[:, start : start + 32]
            kept = mask[:, start : start + 32].unsqueeze(1)
            weights = torch.tril(ones[: rows.shape[1], : rows.shape[1]]) * kept
            result[:, start : start + 32] = torch.baddbmm(carry, weights, rows)
            carry = result[:, start : start + 32][:, -1:]
        return result
