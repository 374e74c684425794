# expect: faster
# analysis: The reference copies every window before it averages.
# design: Add shifted slices of the padded input in place.
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
        last = padded.shape[2] - self.kernel_size + 1
        result = padded[:, :, 0 : last : self.stride].clone()
        for offset in range(1, self.kernel_size):
            result.add_(padded[:, :, offset : last + offset : self.stride])
        return result.mul_(1.0 / self.kernel_size)
