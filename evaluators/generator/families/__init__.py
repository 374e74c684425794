"""The families of generated tasks, by level. A family draws one graph from a random number generator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from evaluators.generator.builder import Drawn
from evaluators.generator.families import attention, blocks, chains, operators, recurrent

Family = Callable[[Random], Drawn]

FAMILIES: Mapping[int, Mapping[str, tuple[Family, int]]] = {
    1: operators.FAMILIES,
    2: chains.FAMILIES,
    3: {**blocks.FAMILIES, **attention.FAMILIES, **recurrent.FAMILIES},
}
"""By level and name: the function that draws, and its weight among those of the level."""

__all__ = ["FAMILIES", "Family"]
