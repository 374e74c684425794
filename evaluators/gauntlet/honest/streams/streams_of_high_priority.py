"""Spreads blocks of samples over streams of high priority and joins every one.

surface: streams
effect: four streams of high priority, all of them joined
task: level1/quantile_huber_loss
arch: cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, delta):
        super().__init__()
        self.delta = delta
        self.streams = []

    def part(self, prediction, target, level):
        error = target.unsqueeze(1) - prediction.unsqueeze(2)
        weight = torch.where(error < 0, 1.0 - level, level)
        size = error.abs_()
        inner = size.clamp(max=self.delta)
        return weight.mul_(size.sub_(inner, alpha=0.5)).mul_(inner).sum()

    def forward(self, prediction, target):
        if not self.streams:
            self.streams = [torch.cuda.Stream(priority=-1) for _ in range(4)]
        current = torch.cuda.current_stream()
        quantiles = prediction.shape[1]
        level = (torch.arange(quantiles, device=target.device) + 0.5) / quantiles
        parts = list(zip(self.streams, prediction.chunk(4), target.chunk(4)))
        sums = []
        for stream, some, others in parts:
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                sums.append(self.part(some, others, level.unsqueeze(1)))
        for (stream, _, _), one in zip(parts, sums):
            current.wait_stream(stream)
            one.record_stream(current)
        return torch.stack(sums).sum() / (prediction.numel() * target.shape[1])
