"""The peculiar pieces of a program: those that it adds to its task's reference, weighted by how rare they are.

Two programs for one task are alike because of the task, so the reference's pieces do not count. Of the rest, a piece
that most of the bundled, honest programs have says nothing about a cheat.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

from evaluators.guard.similarity import pieces
from evaluators.tasks import load_tasks, program_source
from evaluators.tasks.loader import load_variants


@lru_cache(maxsize=4096)
def traits(source: str, reference: str = "") -> Mapping[str, float]:
    """Weights of the pieces (`evaluators.guard.similarity`) that a program adds to its task's reference."""
    own = pieces(source)
    added = Counter(own) - Counter(pieces(reference)) if reference else own
    return {piece: math.sqrt(count) * weight for piece, count in added.items() if (weight := rarity(piece)) > 0}


def profile(source: str, reference: str = "") -> Mapping[str, float]:
    """The traits, scaled so that the product of two profiles is the cosine of the angle between them."""
    weights = traits(source, reference)
    length = math.sqrt(sum(weight**2 for weight in weights.values()))
    return {piece: weight / length for piece, weight in weights.items()} if length else {}


def product(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """The scalar product of two profiles, from 0 (nothing in common) to 1."""
    few, many = sorted((first, second), key=len)
    return sum(weight * many[piece] for piece, weight in few.items() if piece in many)


def rarity(piece: str) -> float:
    """From 0 for a piece that every bundled program has, to 1 for a piece that none has (inverse document
    frequency)."""
    programs, having = _background()
    return math.log((programs + 1) / (having[piece] + 1)) / math.log(programs + 1)


@lru_cache(maxsize=1)
def _background() -> tuple[int, Counter[str]]:
    """The number of bundled programs, and in how many of them each piece occurs."""
    having: Counter[str] = Counter()
    programs = [
        source
        for task in load_tasks("bundled")
        for source in (program_source(task), *(variant.source for variant in load_variants(task.id)))
    ]
    for source in programs:
        having.update(pieces(source).keys())
    return len(programs), having
