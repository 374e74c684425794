"""Devices that timings belong to, behind one small interface."""

from evaluators.device.base import Device, Region, Slot
from evaluators.device.cpu import CpuDevice


def open_device(arch: str, *, threads: int = 1) -> Device:
    """The device of an architecture. Raises ValueError for one that this version cannot measure on."""
    if arch == "cpu":
        return CpuDevice(threads=threads)
    raise ValueError(f"evaluator.arch must be cpu, got {arch}")


__all__ = ["CpuDevice", "Device", "Region", "Slot", "open_device"]
