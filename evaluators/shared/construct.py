"""Constructs a model on a device, in the judge and in a runner alike, so that equal seeds give equal weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn


def construct(
    make: Callable[[], nn.Module], device: torch.device, seed: Callable[[], None], on_host: bool = False
) -> nn.Module:
    """The model that `make` gives after `seed`, in training mode, on `device`.

    For a GPU the constructor runs with the GPU as torch's default device, unless `on_host`: a CPU takes seconds to fill
    large weights. If it fails there, as one that uses numpy does, it is called again with the CPU as the default.
    """
    seed()
    if device.type == "cpu" or on_host:
        return make().to(device).train()
    try:
        with device:
            model = make()
    except torch.OutOfMemoryError:
        raise
    except Exception:  # noqa: BLE001  (the program may raise anything there, and nothing on the CPU)
        seed()
        model = make()
    return model.to(device).train()
