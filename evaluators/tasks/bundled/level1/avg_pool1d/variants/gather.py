# expect: slower
# analysis: The reference copies every window before it averages.
# design: Gather every window by index and average.
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
        count = (padded.shape[2] - self.kernel_size) // self.stride + 1
        starts = torch.arange(count, device=x.device) * self.stride
        offsets = torch.arange(self.kernel_size, device=x.device)
        windows = padded[:, :, starts.unsqueeze(1) + offsets]
        return windows.mean(dim=-1)
