# expect: faster
# analysis: The passes over the whole batch do not stay in cache.
# design: Process one image at a time with the folded weight.
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=kernel_size // 2, bias=False)
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1))
        self.scale = nn.Parameter(torch.randn(out_channels, 1, 1))

    def forward(self, x):
        weight = self.conv.weight * self.scale.unsqueeze(1)
        bias = (self.bias * self.scale).flatten()
        images = []
        for image in x.split(1):
            y = F.conv2d(image, weight, bias, padding=self.conv.padding)
            images.append(F.hardswish(y, inplace=True))
        return torch.cat(images)
