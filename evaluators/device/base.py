"""What the judge asks of a device, and what a runner does on it: the two halves of one small interface.

The judge's half (`Device`) allocates memory that both processes see, locks a measuring slot of the host, and knows what
timings depend on. The runner's half (`RunnerDevice`) maps that memory and times one call by its own clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

if TYPE_CHECKING:  # neither is for runners: pyarrow starts threads, of which the zygote must have none
    from evaluators.clocks import Clock
    from evaluators.records import ClockSample


@dataclass
class Region:
    """Memory that the judge allocated: `memory` is its own uint8 view, `descriptor` what a runner maps."""

    memory: Tensor
    descriptor: int
    size: int

    def close(self) -> None: ...


@dataclass(frozen=True)
class Slot:
    """One place on the host where one measurement runs at a time: the cores that both runners take turns on, and those
    that the judge works on."""

    index: int
    cores: tuple[int, ...]
    judge_cores: tuple[int, ...]


KernelRecord = tuple[str, int, float, float]  # name, stream, and the seconds at which it started and ended
MARKS = ("[begin]", "[end]")  # names that no kernel can have


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
        """What `evaluators.device.runner_device` makes the runner's half from; JSON. `memory_bytes` of its own memory
        are for one runner."""

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


class RunnerDevice(Protocol):
    """The device from inside a runner. Its methods hold on to what they call, so that a candidate which replaces
    `torch`'s functions does not change how it is measured."""

    def start(self) -> None:
        """Sets limits and numeric flags, before any line of the candidate runs."""

    def flags(self) -> dict[str, str]:
        """The global numeric flags as they stand now, by name."""

    def enforce_flags(self) -> None:
        """Sets the global numeric flags back to what both sides run under."""

    def map(self, descriptor: int, size: int) -> Tensor:
        """The judge's memory as a uint8 tensor; closes the descriptor."""

    def construct(self, make: Callable[[], nn.Module], seed: int, on_host: bool) -> nn.Module:
        """The model that `make` gives under a seed, on the device, made there or `on_host`."""

    def seed(self, seed: int) -> None:
        """Seeds every generator that the program may draw from."""

    def timed(self, model: Callable[..., Any], inputs: Sequence[Any], *, is_first: bool = False) -> tuple[Any, float]:
        """One call with cold caches, until the device is idle again; its output and seconds. The first of a burst comes
        after a wait, and may take longer to reach the device."""

    def trace(self, model: Callable[..., Any], inputs: Sequence[Any]) -> list[KernelRecord] | None:
        """Every kernel that one call runs, or None where nothing records them; first of all MARKS, set on the stream by
        which calls are timed: what is ordered with it begins after the first has ended and ends before the second."""

    def finish(self) -> None:
        """Waits until the device has done everything asked of it."""
