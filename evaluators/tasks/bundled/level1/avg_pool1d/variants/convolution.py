# expect: faster
# analysis: The reference copies every window before it averages.
# design: Convolve each row with a constant kernel.
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
        rows = x.reshape(-1, 1, x.shape[2])
        kernel = torch.full((1, 1, self.kernel_size), 1.0 / self.kernel_size, dtype=x.dtype, device=x.device)
        result = F.conv1d(rows, kernel, stride=self.stride, padding=self.padding)
        return result.reshape(x.shape[0], x.shape[1], -1)
