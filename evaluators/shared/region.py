"""Memory that judge and runner both see."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass
class Region:
    """Memory that the judge allocated: `memory` is its own uint8 view, `descriptor` what a runner maps."""

    memory: Tensor
    descriptor: int
    size: int

    def close(self) -> None: ...
