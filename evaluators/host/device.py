"""The interface of a device, as the judge uses it.

A device allocates memory that judge and runners share, locks a measuring slot of the host, and knows what timings
depend on. This half runs in the judge's process (trusted). The other half, `evaluators.runner.device`, maps the memory
in a runner and times one call by the runner's clock; this half never relies on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from evaluators.records import ClockSample
from evaluators.shared.region import Region
from evaluators.timing.clocks import Clock

if TYPE_CHECKING:
    from evaluators.host.gate import Gate


@dataclass(frozen=True)
class Slot:
    """A place on the host where one measurement runs at a time: the cores on which both runners take turns, and those
    on which the judge works."""

    index: int
    cores: tuple[int, ...]
    judge_cores: tuple[int, ...]


def gpu_files() -> tuple[str, ...]:
    """The device files of all GPUs of the host that are to be seen here."""
    return tuple(sorted(map(str, Path("/dev").glob("nvidia[0-9]*"))))


class Device(Protocol):
    """A kind of processor that candidates are measured on, from the judge's side."""

    arch: str
    threads: int
    torch_device: torch.device
    name: str  # of this device on the host
    capability: str  # a GPU's compute capability, such as `9.0`; empty for a CPU
    hidden: Sequence[str]  # files of other devices, which no program may reach
    own_memory: bool  # whether it has memory of its own, which the host's limits do not cover
    clock: Clock  # turns the durations of bursts into figures
    calibrated_seconds: float  # the difference between processes matters to shorter references; 0: to none
    shares_tensors: bool  # whether the judge can map the memory of a runner's tensors
    looks_first: bool  # whether preparing a measurement takes so long that a first look may save time
    starts_ahead: bool  # whether processes take so long to start and end that no verdict should wait for that
    keeps_reference: bool  # whether the reference's process serves several judgements; only if `starts_ahead`

    def allocate(self, size: int) -> Region:
        """Allocates `size` bytes of memory to share with the runners."""

    def new_gate(self, output_bytes: int, memory_bytes: int) -> Gate | None:
        """A gate for one runner, by which the judge alone times calls; None for a device that needs none.
        `output_bytes`: of one call. `memory_bytes`: of all that the runner allocates."""

    def acquire(self, timeout: float) -> Slot:
        """Waits for a measuring slot that no other evaluator of this host holds, and takes it. Raises TimeoutError
        after `timeout` seconds."""

    def release(self) -> None:
        """Gives the slot back."""

    def unmeasured(self, timeout: float) -> AbstractContextManager[None]:
        """Within this block nobody measures on the device, and programs may run there that are not measured. Raises
        TimeoutError after `timeout` seconds."""

    def trim(self) -> None:
        """Gives back device memory that the judge holds and does not use."""

    def environment(self) -> Mapping[str, str]:
        """Environment variables of the runners."""

    def versions(self) -> Mapping[str, str]:
        """Names of the software and hardware that timings depend on: part of a baseline's key, and of every verdict."""

    def runner_options(self, memory_bytes: int) -> dict[str, Any]:
        """Options for `evaluators.runner.device.runner_device`, which makes the runner's half; JSON. One runner gets
        `memory_bytes` of the device's own memory."""

    def generators(self) -> Sequence[torch.Generator]:
        """The random generators that a program on this device draws from."""

    def synchronize(self) -> None:
        """Waits until all that the judge itself started on the device is done."""

    def max_calls(self, slot_bytes: int) -> int:
        """The most sets of inputs and outputs, of `slot_bytes` each, that one side may have in memory at once."""

    def calls(self, seconds: float, most: int) -> tuple[int, int]:
        """The number of calls in a burst (at most `most`) of a program that takes `seconds`, and how many of these
        calls are untimed because they warm it up."""

    def warm_up(self) -> None:
        """Keeps the device busy until its clocks are up."""

    def clock_sample(self) -> ClockSample | None:
        """Clocks and throttle reasons now, or None if the device does not tell."""

    def spread(self, seconds: float) -> float:
        """Relative standard deviation, between pairs of processes, of a program's speed-up over itself. No measurement
        within one pair shows it. `seconds`: what the program takes."""

    def floor_seconds(self, written: int) -> float:
        """Seconds below which nothing can write `written` bytes on this device; 0 if that is not known."""

    def check_health(self) -> None:
        """Raises InfraError if a fixed computation gives another result, or takes much longer, than at the start."""

    def memory_in_use(self) -> int:
        """Bytes of device memory in use by any process but the judge; 0 if the host's limits cover all memory."""
