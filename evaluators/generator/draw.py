"""Draws tasks: a family, its graph, its sizes, its text and its structure. The same seed gives the same tasks."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from evaluators.generator.builder import Drawn
from evaluators.generator.families import FAMILIES
from evaluators.generator.printing import reference_program, title_of
from evaluators.generator.sizes import choose_sizes
from evaluators.records import Task

LEVEL_WEIGHTS = {1: 30, 2: 45, 3: 25}


@dataclass(frozen=True)
class DrawnTask:
    """A drawn task with its sizes by profile. `layout` names what distinguishes two tasks of one structure: dtypes,
    layouts, ranks and orders of magnitude of the sizes."""

    drawn: Drawn
    task: Task
    profiles: Mapping[str, Mapping[str, int]]
    layout: str

    @property
    def family(self) -> str:
        return self.drawn.family


def draw_tasks(seed: int) -> Iterator[DrawnTask | None]:
    """Tasks without end, each from a generator of its own. None stands for a draw that no sizes fit."""
    index = 0
    while True:
        yield draw_task(random.Random(f"{seed}/{index}"), index)
        index += 1


def draw_task(rng: random.Random, index: int, level: int | None = None, family: str | None = None) -> DrawnTask | None:
    """One task of a drawn (or given) level and family. None if no sizes fit."""
    level = level or rng.choices(list(LEVEL_WEIGHTS), list(LEVEL_WEIGHTS.values()))[0]
    families = FAMILIES[level]
    family = family or rng.choices(list(families), [weight for _, weight in families.values()])[0]
    drawn = families[family][0](rng)
    profiles = choose_sizes(drawn, rng)
    if profiles is None:
        return None
    source = reference_program(drawn.graph, profiles["cuda"], title_of(drawn.graph))
    task = Task(f"level{level}/{index}", level, drawn.name, source, tuple(dict.fromkeys(drawn.tags)))
    return DrawnTask(drawn, task, profiles, _layout(drawn, profiles))


def _layout(drawn: Drawn, profiles: Mapping[str, Mapping[str, int]]) -> str:
    inputs = [node for _, node in drawn.graph.inputs()]
    forms = [f"{node.dtype}{node.attrs['layout']}{len(node.shape)}" for node in inputs]
    magnitudes = [str(profiles["cuda"][name].bit_length() // 2) for name in drawn.roles if name != drawn.scaled]
    return " ".join([*forms, *magnitudes])
