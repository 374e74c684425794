"""Warns about its inputs and logs to the root logger.

surface: process
effect: warnings and log lines that change no value
task: level1/masked_cumsum
arch: cpu cuda
"""

import logging
import warnings

import torch
from torch import nn

logging.basicConfig(level=logging.INFO)
log = logging.getLogger(__name__)


class ModelNew(nn.Module):
    def forward(self, x, mask):
        if mask.dtype is not torch.bool:
            warnings.warn("the mask is converted", stacklevel=2)
            mask = mask.bool()
        if not x.is_contiguous():
            warnings.warn("the input is copied", stacklevel=2)
        log.info("scan of %d steps", x.size(1))
        kept = torch.masked_fill(x, torch.logical_not(mask).unsqueeze(-1), 0.0)
        return torch.cumsum(kept, dim=1)
