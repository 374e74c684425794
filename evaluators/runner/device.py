"""What a runner does on its device: the untrusted half of `evaluators.host.device`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from torch import Tensor, nn

from evaluators.shared.kernel_record import KernelRecord


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


def runner_device(options: dict[str, Any]) -> RunnerDevice:
    """The runner's half of a device, from the judge's `Device.runner_options`."""
    arguments = {name: value for name, value in options.items() if name != "kind"}
    if options["kind"] == "cpu":
        from evaluators.runner.cpu import CpuRunner

        return CpuRunner(**arguments)
    from evaluators.runner.cuda import CudaRunner

    return CudaRunner(**arguments)
