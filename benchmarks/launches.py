"""How the time of four short kernels depends on the number of launches that their process has made before.

    python -m benchmarks.launches [--calls 40] [--shifts 12]

Each row has one more launch before each call. The first column is the mean of so many calls; each further column is the
same after one launch more. If the launches of a call are a multiple of four, all of its calls have the same turn, and
one launch more brings them into the next one. Needs a GPU.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
import typer
from torch import Tensor

from benchmarks.tables import print_table

_FLUSH_BYTES, _FLUSHES, _EXTRA = 180 << 20, 4, 4
_ELEMENTS, _WARM_UP = 1 << 16, 200
_OWN = _FLUSHES + 4 + 1  # launches of a call: flushes, its kernels, a copy of its output


class _Calls:
    """Four kernels behind flushes, timed by events as a runner does."""

    def __init__(self) -> None:
        self._scratch = torch.empty(_FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
        self._input = torch.randn(_ELEMENTS, device="cuda")
        self._output = torch.empty_like(self._input)
        self._begin, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def launch(self) -> None:
        """One launch more."""
        self._scratch[:1].zero_()

    def microseconds(self, calls: int, extra: int) -> float:
        """The mean of the middle half of so many calls, each with so many launches more before it."""
        taken = np.sort([self._call(extra) for _ in range(calls)])
        return float(np.mean(taken[calls // 4 : calls - calls // 4]))

    def _call(self, extra: int) -> float:
        torch.cuda.synchronize()
        for _ in range(extra):
            self.launch()
        for _ in range(_FLUSHES):
            self._scratch.zero_()
        self._begin.record()
        output = _four_kernels(self._input)
        self._end.record()
        torch.cuda.synchronize()
        self._output.copy_(output)
        return self._begin.elapsed_time(self._end) * 1e3


def _four_kernels(values: Tensor) -> Tensor:
    return ((values + 1).exp() * 2).relu()


def main(
    calls: Annotated[int, typer.Option(help="Calls of which the mean is taken.")] = 40,
    shifts: Annotated[int, typer.Option(help="How often one launch more is made.")] = 12,
) -> None:
    """Prints microseconds of a call."""
    made = _Calls()
    made.microseconds(_WARM_UP, 0)
    rows = []
    for extra in range(_EXTRA):
        cells = []
        for _ in range(shifts):
            cells.append(f"{made.microseconds(calls, extra):.2f}")
            made.launch()
        rows.append([str(_OWN + extra), *cells])
    print_table(
        "Four kernels, microseconds of a call", ["launches a call", *(f"+{shift}" for shift in range(shifts))], rows
    )


if __name__ == "__main__":
    typer.run(main)
