"""Memory that judge and runner share."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass
class Region:
    """Memory that the judge allocated. `memory`: the judge's own view of it, uint8. `descriptor`: a runner maps the
    memory by it. `size`: in bytes."""

    memory: Tensor
    descriptor: int
    size: int

    def close(self) -> None:
        """Closes the descriptor; the memory itself stays as long as it is used."""
