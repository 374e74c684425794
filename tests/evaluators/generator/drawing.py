"""Draws a few tasks of every family, for the tests of the generator."""

from __future__ import annotations

import random
from functools import lru_cache

from evaluators.generator.draw import DrawnTask, draw_task
from evaluators.generator.families import FAMILIES

NAMES = [(level, family) for level, families in FAMILIES.items() for family in families]


@lru_cache(maxsize=512)
def drawn(level: int, family: str, number: int) -> DrawnTask:
    """A task of a family, the first after some draw that sizes fit."""
    index = 1000 * number
    while (task := draw_task(random.Random(f"test/{family}/{index}"), index, level, family)) is None:
        index += 1
    return task


def some(number: int) -> list[DrawnTask]:
    """So many tasks of every family."""
    return [drawn(level, family, index) for level, family in NAMES for index in range(number)]
