"""The interface of a device from inside a runner: the other half of `evaluators.host.device`.

Runs in the candidate's process (untrusted).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor, nn

if TYPE_CHECKING:
    from evaluators.runner.tracer import Tracer


class RunnerDevice(Protocol):
    """The device from inside a runner. Its methods keep references to the functions that they call: a candidate that
    replaces functions of `torch` does not change how it is measured."""

    def start(self) -> None:
        """Sets limits and numeric flags, before any line of the candidate runs."""

    def load_libraries(self) -> None:
        """Calls what many programs call, so that their first calls load no libraries, and draws no random numbers."""

    def flags(self) -> dict[str, str]:
        """The values of the global numeric flags now, by name."""

    def enforce_flags(self) -> None:
        """Sets the global numeric flags back to the values under which both sides run."""

    def map(self, descriptor: int, size: int) -> Tensor:
        """The judge's memory as a uint8 tensor; closes the descriptor."""

    def construct(self, make: Callable[[], nn.Module], seed: int, on_host: bool) -> nn.Module:
        """The model that `make` gives under a seed, on the device. It is made there, or `on_host` and then moved."""

    def seed(self, seed: int) -> None:
        """Seeds every generator that the program may draw from."""

    def timed(
        self, model: Callable[..., Any], inputs: Sequence[Any], *, place: int = 0, is_alone: bool = False
    ) -> tuple[Any, float]:
        """Makes one call with cold caches and waits until the device is idle again. Returns the output and the seconds.

        `place`: of the call in its burst. `is_alone`: it is the only one. That comes after a wait, so that it may take
        longer to reach the device; the first of several only warms up."""

    def tidy(self) -> None:
        """Gives back memory that nothing uses any more, before a burst. Where a program's tensors lie then depends on
        the burst alone, not on what was called before, in this process or the other."""

    def tracer(self) -> Tracer | None:
        """What records the kernels from now on; None if there is nothing that could."""

    def finish(self) -> None:
        """Waits until the device has done all its work."""


def runner_device(options: dict[str, Any]) -> RunnerDevice:
    """The runner's half of a device, from the judge's `Device.runner_options`."""
    arguments = {name: value for name, value in options.items() if name != "kind"}
    if options["kind"] == "cpu":
        from evaluators.runner.cpu import CpuRunner

        return CpuRunner(**arguments)
    from evaluators.runner.cuda import CudaRunner

    return CudaRunner(**arguments)
