# expect: same
# analysis: The reference convolves with a dense weight that is mostly zeros.
# design: Unfold the windows and multiply them by the weights.
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, kernel_size))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        taps = self.weight.shape[2]
        windows = F.pad(x, (taps - 1, 0)).unfold(2, taps, 1)
        result = torch.matmul(windows, self.weight.transpose(1, 2)).squeeze(3)
        return result + self.bias.unsqueeze(1)
