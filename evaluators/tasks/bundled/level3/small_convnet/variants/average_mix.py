# expect: faster
# analysis: The second pointwise layer runs before the global average.
# design: Average first, so that this layer sees one vector per image.
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_channels, channels, classes):
        super().__init__()
        self.stem = nn.Conv2d(in_channels, channels, 3, padding=1)
        self.expand = nn.Conv2d(channels, 4 * channels, 1)
        self.mix = nn.Conv2d(4 * channels, 4 * channels, 1)
        self.head = nn.Linear(4 * channels, classes)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        x = torch.relu(F.avg_pool2d(self.expand(x), 2))
        x = self.mix(x.mean(dim=(2, 3), keepdim=True))
        return self.head(x.flatten(1))
