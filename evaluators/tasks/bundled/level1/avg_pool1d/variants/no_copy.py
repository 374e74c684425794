# expect: faster
# analysis: The reference copies every window before it averages.
# design: Average the windows as a view, without the copy.
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
        return padded.unfold(2, self.kernel_size, self.stride).mean(dim=-1)
