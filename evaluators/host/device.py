"""What the judge asks of a device.

A device allocates memory that both processes see, locks a measuring slot of the host, and knows what timings depend on.
Its other half, `evaluators.runner.device`, maps that memory in a runner and times one call by the runner's clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from evaluators.records import ClockSample
from evaluators.shared.region import Region
from evaluators.timing.clocks import Clock


@dataclass(frozen=True)
class Slot:
    """One place on the host where one measurement runs at a time: the cores that both runners take turns on, and those
    that the judge works on."""

    index: int
    cores: tuple[int, ...]
    judge_cores: tuple[int, ...]


class Device(Protocol):
    """A kind of processor that candidates are measured on, from the judge's side."""

    arch: str
    threads: int
    torch_device: torch.device
    name: str  # of this one on the host
    capability: str  # a GPU's compute capability, such as `9.0`; empty for a CPU
    own_memory: bool  # whether it has memory of its own, which host limits do not see
    clock: Clock  # how its bursts become figures
    calibrated_seconds: float  # what differs between processes matters to references shorter than that; 0 for never
    looks_first: bool  # whether it takes long to prepare a measurement, so that a look at the program may spare it

    def allocate(self, size: int) -> Region:
        """`size` bytes of memory shared with the runners."""

    def acquire(self, timeout: float) -> Slot:
        """Waits for a free measuring slot of this host, which no other evaluator on it holds. Raises TimeoutError."""

    def release(self) -> None:
        """Gives the slot back."""

    def unmeasured(self, timeout: float) -> AbstractContextManager[None]:
        """As long as it lasts, programs may run on the device that are not measured, and none is. Raises
        TimeoutError."""

    def trim(self) -> None:
        """Gives device memory back that the judge holds and does not use."""

    def environment(self) -> Mapping[str, str]:
        """Environment variables of the runners."""

    def versions(self) -> Mapping[str, str]:
        """Software and hardware that timings depend on: part of a baseline's key, and of every verdict."""

    def runner_options(self, memory_bytes: int) -> dict[str, Any]:
        """What `evaluators.runner.device.runner_device` makes the runner's half from; JSON. `memory_bytes` of its own
        memory are for one runner."""

    def generators(self) -> Sequence[torch.Generator]:
        """The random generators that a program on this device draws from."""

    def synchronize(self) -> None:
        """Waits until what the judge itself started on the device is done."""

    def max_calls(self, slot_bytes: int) -> int:
        """How many sets of inputs and outputs of `slot_bytes` may be in memory at once, a side."""

    def calls(self, seconds: float, most: int) -> tuple[int, int]:
        """How many calls make a burst, of a program that takes `seconds`; and how many of them warm it up, untimed."""

    def warm_up(self) -> None:
        """Works until the device's clocks are up."""

    def clock_sample(self) -> ClockSample | None:
        """Clocks and throttle reasons now, or None where the device does not tell."""

    def spread(self, seconds: float) -> float:
        """Relative standard deviation of the speed-up of a program over itself between pairs of processes, which no
        measurement within one pair shows; of a program that takes `seconds`."""

    def floor_seconds(self, written: int) -> float:
        """Seconds in which nothing can write so many bytes on this device; 0 where that is not known."""

    def check_health(self) -> None:
        """Raises InfraError when a known computation gives another result, or takes much longer, than at the start."""

    def memory_in_use(self) -> int:
        """Bytes of device memory in use by anybody but the judge; 0 where the host limits all the memory there is."""
