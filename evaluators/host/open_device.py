"""Opens the device of an architecture. Importing this is cheap; a GPU's libraries are loaded with its device."""

from __future__ import annotations

import torch

from evaluators.host.device import Device


def open_device(arch: str = "auto", *, threads: int = 1) -> Device:
    """The device of an architecture (Ray's accelerator names: `H200`, `A100`; or `cpu`); `auto` takes the GPU where
    there is one. Raises ValueError for an architecture that this process does not see."""
    if arch == "cpu" or (arch == "auto" and not torch.cuda.is_available()):
        from evaluators.host.cpu_device import CpuDevice

        return CpuDevice(threads=threads)
    if not torch.cuda.is_available():
        raise ValueError(f"evaluator.arch is {arch}, but torch {torch.__version__} sees no GPU here")
    from evaluators.host.cuda_device import CudaDevice

    device = CudaDevice(threads=threads)
    if arch not in ("auto", device.arch):
        raise ValueError(f"evaluator.arch is {arch}, but this process sees the architecture {device.arch}")
    return device
