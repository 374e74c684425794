# expect: faster
# analysis: The reference copies every window before it averages.
# design: Take differences of prefix sums, so that the window size costs nothing.
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, kernel_size, stride, padding):
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding

    def forward(self, x):
        padded = F.pad(x, (self.padding + 1, self.padding))
        sums = torch.cumsum(padded, dim=2, dtype=torch.float64)
        result = sums[:, :, self.kernel_size :] - sums[:, :, : -self.kernel_size]
        return (result[:, :, :: self.stride] / self.kernel_size).float()
