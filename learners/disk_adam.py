"""AdamW with its two moments in files. They are twice as large as the weights, and take no host memory there.

The files are mapped into memory, so the kernel reads ahead of the step and writes behind it. Once mapped they have no
name, so the end of the process always frees the disk. A checkpoint holds their content as it holds any other state.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

MOMENTS = ("exp_avg", "exp_avg_sq")


class DiskAdamW(torch.optim.AdamW):
    """torch's AdamW for parameters in host memory."""

    def __init__(self, parameters: Any, folder: str, **settings: Any) -> None:
        """`folder`: an existing folder on a fast local disk with eight bytes of space per parameter."""
        super().__init__(parameters, **settings)
        self._folder = folder
        self._mapped: dict[Tensor, set[int]] = {}

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step. Moments that a checkpoint has loaded since the last step are moved to disk first."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._to_disk(parameter)
        return super().step(closure)

    def _to_disk(self, parameter: Tensor) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
        mapped = self._mapped.setdefault(parameter, set())
        for name in MOMENTS:
            if name in state and state[name].data_ptr() in mapped:
                continue
            moment = self._map(parameter)
            if name in state:
                moment.copy_(state[name])
            state[name] = moment
        self._mapped[parameter] = {state[name].data_ptr() for name in MOMENTS}

    def _map(self, like: Tensor) -> Tensor:
        """Zeros of the parameter's shape and dtype, in a file of their own."""
        file, path = tempfile.mkstemp(prefix="moments-", dir=self._folder)
        try:
            os.posix_fallocate(
                file, 0, max(like.numel() * like.element_size(), 1)
            )  # a full disk is an error here, not a crash later
            return torch.from_file(path, shared=True, size=like.numel(), dtype=like.dtype).view(like.shape)
        finally:
            os.close(file)
            os.unlink(path)
