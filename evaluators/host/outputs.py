"""Where the judge finds the outputs of a runner's last burst.

Runs in the judge's process (trusted). On a CPU it reads them where the program's own tensors lie, in an arena that both
processes map: nothing is collected by the program, so no time can be saved or spent on collecting. On a GPU the runner
copies them to memory of the judge's, which is poisoned before each burst. Places are claims; nothing in here may read
outside the memory that the judge allocated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from evaluators.failures import RunnerFailure
from evaluators.host.device import Device
from evaluators.records import Outcome
from evaluators.shared import nesting
from evaluators.shared.region import Region


class TensorSets:
    """Equal sets of tensors in one region, one set for each call of a burst.

    `views[call]` are the judge's views of the tensors of one set.
    """

    def __init__(self, specs: list[nesting.Spec], memory: Tensor, count: int) -> None:
        size = nesting.layout(specs)[1]
        self.views = [nesting.views(specs, memory[call * size : (call + 1) * size]) for call in range(count)]
        self._memory, self._size = memory, size

    def bytes_of(self, count: int, first: int = 0) -> Tensor:
        """The memory of `count` sets from the set `first` on, as 64-bit integers."""
        return self._memory[first * self._size : (first + count) * self._size].view(torch.int64)


class Outputs(Protocol):
    """The outputs of one runner. They stand as its last burst left them until its next request."""

    def bind(self, specs: list[nesting.Spec], calls: int) -> Region | None:
        """Prepares for bursts of at most `calls` calls with outputs of these forms. Returns memory to show the runner,
        if it has to copy outputs there."""

    def poison(self, calls: int) -> None:
        """Removes the outputs of earlier bursts from memory that the runner copies to."""

    def note_places(self, places: Sequence[Sequence[int]]) -> None:
        """Takes note of where the outputs of a burst lie, as claimed. Raises RunnerFailure for a place that is none."""

    def of_call(self, call: int) -> list[Tensor]:
        """The outputs of one call."""


class ArenaOutputs:
    """Outputs in the memory of the program's own tensors. `region`: that memory."""

    def __init__(self, device: Device, size: int) -> None:
        self.region = device.allocate(size)
        self._specs: list[nesting.Spec] = []
        self._views: list[list[Tensor]] = []
        self._is_closed = False

    @property
    def tensors(self) -> int:
        """How many tensors a call returns."""
        return len(self._specs)

    def bind(self, specs: list[nesting.Spec], calls: int) -> None:
        self._specs, self._views = specs, []

    def poison(self, calls: int) -> None:
        self._views = []

    def note_places(self, places: Sequence[Sequence[int]]) -> None:
        self._views = [self._views_at(offsets) for offsets in places]

    def _views_at(self, offsets: Sequence[int]) -> list[Tensor]:
        if len(offsets) != len(self._specs):
            raise RunnerFailure(Outcome.RUNTIME_ERROR, f"{len(offsets)} places of {len(self._specs)} outputs")
        try:
            return [
                nesting.view_at(spec, self.region.memory, offset)
                for spec, offset in zip(self._specs, offsets, strict=True)
            ]
        except (ValueError, RuntimeError) as error:  # a stride that torch refuses
            raise RunnerFailure(Outcome.RUNTIME_ERROR, str(error)) from None

    def of_call(self, call: int) -> list[Tensor]:
        return self._views[call]

    def close(self) -> None:
        """Gives the memory back, once nobody views it any more."""
        if not self._is_closed:
            self._is_closed = True
            self.region.close()


class CopiedOutputs:
    """Outputs that the runner copies to memory of the judge's."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._sets: TensorSets
        self._all_inexact = False  # whether every output is of a floating-point or complex dtype

    def bind(self, specs: list[nesting.Spec], calls: int) -> Region:
        dtypes = [nesting.dtype_of(spec) for spec in specs]
        self._all_inexact = all(dtype.is_floating_point or dtype.is_complex for dtype in dtypes)
        region = self._device.allocate(nesting.layout(specs)[1] * calls)
        self._device.synchronize()
        self._sets = TensorSets(specs, region.memory, calls)
        return region

    def poison(self, calls: int) -> None:
        """Fills the memory with values that no program computes by accident."""
        if self._all_inexact:
            self._sets.bytes_of(calls).fill_(-1)  # every bit set is NaN in every floating-point format
            return
        for views in self._sets.views[:calls]:
            for output in views:
                _poison(output)

    def note_places(self, places: Sequence[Sequence[int]]) -> None:
        """Nothing to note: the judge knows its own memory."""

    def of_call(self, call: int) -> list[Tensor]:
        return self._sets.views[call]


def _poison(tensor: Tensor) -> None:
    if tensor.is_floating_point() or tensor.is_complex():
        tensor.fill_(float("nan"))
    elif tensor.dtype is torch.bool:
        tensor.copy_(torch.rand(tensor.shape, device=tensor.device) < 0.5)
    else:
        tensor.fill_(torch.iinfo(tensor.dtype).min + 7)
