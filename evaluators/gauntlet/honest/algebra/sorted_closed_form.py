"""Never looks at a pair: sorts the targets and takes all pair sums from prefix sums.

surface: speed
effect: holds for every input: sums over sorted targets come from prefix sums
task: level1/quantile_huber_loss
arch: cpu cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, delta):
        super().__init__()
        self.delta = delta

    def forward(self, prediction, target):
        points = prediction.double()
        ordered = target.double().sort(dim=1).values
        count = ordered.shape[1]
        sums = F.pad(ordered.cumsum(1), (1, 0))
        squares = F.pad(ordered.square().cumsum(1), (1, 0))
        edges = (points - self.delta, points, points + self.delta)
        cuts = [torch.searchsorted(ordered, edge.contiguous()) for edge in edges]
        cuts = [torch.zeros_like(cuts[0]), *cuts, torch.full_like(cuts[0], count)]
        # Between two cuts the loss is one polynomial of the target.
        parts = []
        for low, high in zip(cuts, cuts[1:]):
            number = high - low
            first = sums.gather(1, high) - sums.gather(1, low) - points * number
            second = squares.gather(1, high) - squares.gather(1, low)
            second = second - 2 * points * first - points.square() * number
            parts.append((number, first, second))
        half = 0.5 * self.delta
        below = 0.5 * parts[1][2] + self.delta * (-parts[0][1] - half * parts[0][0])
        above = 0.5 * parts[2][2] + self.delta * (parts[3][1] - half * parts[3][0])
        quantiles = points.shape[1]
        level = (torch.arange(quantiles, device=points.device) + 0.5) / quantiles
        level = level.double()
        total = (below * (1 - level) + above * level).mean() / count
        return total.to(prediction.dtype)
