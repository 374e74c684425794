# expect: faster
# analysis: The first pointwise layer runs before the pooling.
# design: Pool first, so that this layer sees a quarter of the data.
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
        x = torch.relu(self.expand(F.avg_pool2d(x, 2)))
        x = self.mix(x).mean(dim=(2, 3))
        return self.head(x)
