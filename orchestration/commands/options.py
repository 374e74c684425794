"""Options that several commands share, and what their values mean."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from evaluators.records import Task

Arch = Annotated[
    str, typer.Option(help="Where to measure: an accelerator's name (H200), cpu, or auto (the GPU if there is one).")
]
Baselines = Annotated[str, typer.Option(help="Baselines, separated by commas, or all that exist on the architecture.")]
Levels = Annotated[str, typer.Option(help="Levels, separated by commas. Default: all levels.", show_default=False)]
Preset = Annotated[str, typer.Option(help="How thoroughly to measure: fast, thorough or paper.")]
Strict = Annotated[
    str, typer.Option(help="drop_in, or values: outputs of any strides, under the weights of construction.")
]
Containment = Annotated[
    str,
    typer.Option(
        help="What must keep the program in, separated by commas: network, filesystem, user, processes, system_calls.",
        show_default=False,
    ),
]
Marks = Annotated[
    Path | None,
    typer.Option(
        help="Marks of tasks beside those that ship: a file of `warpsmith audit TASKS --output FILE`.",
        show_default=False,
    ),
]
Store = Annotated[
    Path | None,
    typer.Option(
        help="Folder of stored baselines and builds. Default: $XDG_CACHE_HOME/warpsmith, else ~/.cache/warpsmith, or "
        "/var/cache/warpsmith for root.",
        show_default=False,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Check everything but a model of the hub and a root that is a URI, print the plan, start nothing.",
    ),
]


def parse_baselines(text: str, arch: str) -> tuple[str, ...]:
    """The baselines of a comma-separated list, each once; for `all`, every baseline of the architecture."""
    from evaluators.stored.baselines import existing_baselines

    if text == "all":
        return existing_baselines(arch)
    return parse_words(text)


def parse_words(text: str) -> tuple[str, ...]:
    """The words of a comma-separated list, each once."""
    return tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def select_levels(tasks: list[Task], levels: str) -> list[Task]:
    """The tasks whose level is in a comma-separated list; all for an empty list. Raises ValueError if none is left."""
    words = [word.strip() for word in levels.split(",") if word.strip()]
    if bad := [word for word in words if not word.isdecimal()]:
        raise ValueError(f"--levels must be whole numbers with commas between, got {bad[0]!r}")
    chosen = [task for task in tasks if not words or task.level in map(int, words)]
    if not chosen:
        raise ValueError(f"--levels {levels} leaves no task: there are {sorted({task.level for task in tasks})}")
    return chosen
