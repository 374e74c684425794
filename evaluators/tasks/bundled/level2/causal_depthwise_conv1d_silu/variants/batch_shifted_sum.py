# expect: faster
# analysis: The passes over the whole batch do not stay in cache.
# design: Process one sequence at a time with shifted sums.
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, kernel_size))
        self.bias = nn.Parameter(torch.randn(channels))
        self.kernel_size = kernel_size

    def forward(self, x):
        out = torch.empty_like(x)
        taps = self.weight.unbind(2)
        for sequence, y in zip(x, out):
            torch.addcmul(self.bias.unsqueeze(1), sequence, taps[-1], out=y)
            for k in range(1, self.kernel_size):
                y[:, k:].addcmul_(sequence[:, :-k], taps[-1 - k])
            F.silu(y, inplace=True)
        return out
