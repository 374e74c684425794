"""Constructing a model on a device, in the judge as in a runner, so that equal seeds give equal weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn


def construct(
    make: Callable[[], nn.Module], device: torch.device, seed: Callable[[], None], on_host: bool = False
) -> nn.Module:
    """The model that `make` gives after `seed`, in training mode, on `device`.

    On a GPU it is made there from the start, where that works, unless `on_host`: filling large weights takes a CPU
    seconds. A constructor that computes on the CPU, say by numpy, is called again without.
    """
    seed()
    if device.type == "cpu" or on_host:
        return make().to(device).train()
    try:
        with device:
            model = make()
    except torch.OutOfMemoryError:
        raise
    except Exception:  # noqa: BLE001  (whatever the program raises there, it may not raise on the CPU)
        seed()
        model = make()
    return model.to(device).train()
