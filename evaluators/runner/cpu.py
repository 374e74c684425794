"""The CPU from inside a runner: memory files mapped, one call timed by `perf_counter`.

Runs in the candidate's process (untrusted): its seconds are a claim.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from evaluators.shared.construct import construct

# Bound before any candidate is imported.
_precision, _set_precision = torch.get_float32_matmul_precision, torch.set_float32_matmul_precision


class CpuRunner:
    """The runner's half of the CPU (`RunnerDevice`)."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._seed = torch.default_generator.manual_seed  # takes 1 µs, much less than torch.manual_seed

    def start(self) -> None:
        torch.set_num_threads(self.threads)
        self.enforce_flags()

    def load_libraries(self) -> None:
        pass  # torch has linked them

    def flags(self) -> dict[str, str]:
        return {"float32_matmul_precision": _precision()}

    def enforce_flags(self) -> None:
        _set_precision("highest")  # at a lower precision oneDNN uses bfloat16 if the CPU has it

    def map(self, descriptor: int, size: int) -> Tensor:
        with os.fdopen(descriptor, "rb+") as file:
            return torch.frombuffer(mmap.mmap(file.fileno(), max(size, 1)), dtype=torch.uint8)

    def construct(self, make: Callable[[], nn.Module], seed: int, on_host: bool) -> nn.Module:
        return construct(make, torch.device("cpu"), lambda: self.seed(seed), on_host)

    def seed(self, seed: int) -> None:
        self._seed(seed)

    def timed(
        self, model: Callable[..., Any], inputs: Sequence[Any], *, place: int = 0, is_alone: bool = False
    ) -> tuple[Any, float]:
        start = perf_counter()
        output = model(*inputs)
        return output, perf_counter() - start

    def tidy(self) -> None:
        """Nothing to give back."""

    def tracer(self) -> None:
        return None

    def finish(self) -> None:
        """Nothing to wait for: a call is done when it returns."""
