# expect: faster
# analysis: The passes over the whole batch do not stay in cache.
# design: Process one image at a time with a grouped convolution.
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, kernel_size, kernel_size))
        self.bias = nn.Parameter(torch.randn(channels))
        self.padding = kernel_size // 2

    def forward(self, x):
        images = []
        for image in x.split(1):
            y = F.conv2d(image, self.weight, self.bias, padding=self.padding, groups=x.size(1))
            images.append(F.silu(y, inplace=True).add_(image))
        return torch.cat(images)
