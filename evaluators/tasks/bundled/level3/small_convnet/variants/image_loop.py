# expect: same
# analysis: The convolutions write large outputs that are only averaged.
# design: Process one image at a time so that it stays in cache.
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
        outputs = []
        for image in x.split(1):
            y = torch.relu(self.stem(image))
            y = torch.relu(F.avg_pool2d(self.expand(y), 2))
            outputs.append(self.head(self.mix(y).mean(dim=(2, 3))))
        return torch.cat(outputs)
