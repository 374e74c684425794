# expect: same
# analysis: The reference copies every window before it averages.
# design: Average the windows with a matrix-vector product.
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
        padded = F.pad(x, (self.padding, self.padding))
        windows = padded.unfold(2, self.kernel_size, self.stride)
        weights = torch.full((self.kernel_size,), 1.0 / self.kernel_size, dtype=x.dtype, device=x.device)
        return torch.matmul(windows, weights)
