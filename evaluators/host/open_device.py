"""Opens the device of an architecture.

Runs in the judge's process (trusted). Importing it is cheap: a GPU's libraries are loaded with its device only.
"""

from __future__ import annotations

import torch

from evaluators.host.device import Device


def open_device(arch: str = "auto", *, threads: int = 1) -> Device:
    """The device of an architecture: one of Ray's accelerator names (`H200`, `A100`), `cpu`, or `auto` for the GPU if
    there is one, else the CPU. Raises ValueError for an architecture that this process does not see."""
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
