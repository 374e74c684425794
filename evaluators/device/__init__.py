"""Devices that timings belong to, behind one small interface.

Importing this package is cheap and starts no thread: runners do.
"""

from __future__ import annotations

from typing import Any

import torch

from evaluators.device.base import MARKS, Device, KernelRecord, Region, RunnerDevice, Slot


def open_device(arch: str = "auto", *, threads: int = 1) -> Device:
    """The device of an architecture (Ray's accelerator names: `H200`, `A100`; or `cpu`); `auto` takes the GPU where
    there is one. Raises ValueError for an architecture that this process does not see."""
    if arch == "cpu" or (arch == "auto" and not torch.cuda.is_available()):
        from evaluators.device.cpu import CpuDevice

        return CpuDevice(threads=threads)
    if not torch.cuda.is_available():
        raise ValueError(f"evaluator.arch is {arch}, but torch {torch.__version__} sees no GPU here")
    from evaluators.device.cuda import CudaDevice

    device = CudaDevice(threads=threads)
    if arch not in ("auto", device.arch):
        raise ValueError(f"evaluator.arch is {arch}, but this process sees the architecture {device.arch}")
    return device


def runner_device(options: dict[str, Any]) -> RunnerDevice:
    """The runner's half of a device, from the judge's `Device.runner_options`."""
    arguments = {name: value for name, value in options.items() if name != "kind"}
    if options["kind"] == "cpu":
        from evaluators.device.cpu_runner import CpuRunner

        return CpuRunner(**arguments)
    from evaluators.device.cuda_runner import CudaRunner

    return CudaRunner(**arguments)


__all__ = ["MARKS", "Device", "KernelRecord", "Region", "RunnerDevice", "Slot", "open_device", "runner_device"]
