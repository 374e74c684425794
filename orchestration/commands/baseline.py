"""`warpsmith baseline`: measures tasks' baselines into the store."""

from __future__ import annotations

from typing import Annotated

import typer

from configs.cache_folder import cache_folder
from orchestration.commands.options import Arch, Baselines, Levels, Preset, Store, parse_baselines, select_levels
from orchestration.commands.refusal import STOPPED, refuse, with_remedy
from orchestration.commands.store import open_to_runners, warn_if_closed


def baseline(
    source: Annotated[
        str,
        typer.Argument(
            metavar="TASKS",
            help="`bundled`, a KernelBench folder or data set, a JSONL file, one task's file, or a run's .yaml.",
        ),
    ],
    arch: Arch = "auto",
    baselines: Baselines = "all",
    preset: Preset = "fast",
    levels: Levels = "",
    store: Store = None,
    builders: Annotated[int, typer.Option(min=0, help="How many baselines to compile at once. 0: one per core.")] = 0,
) -> None:
    """Measure tasks' baselines into the store, from which verdicts take them. Exit code 1 if none was measured."""
    from configs.load import ConfigError
    from evaluators.compile.ahead import most_builders
    from evaluators.evaluator import Evaluator
    from evaluators.failures import InfraError
    from evaluators.host.open_device import open_device
    from evaluators.tasks import TaskError, profile_of
    from orchestration.commands.baseline_store import fill_store, load_task_source

    folder = store or cache_folder()
    with open_to_runners():
        try:
            device = open_device(arch)
            tasks = select_levels(load_task_source(source, profile_of(device.arch)), levels)
            names = parse_baselines(baselines, device.arch)
            if not set(names) - {"eager"}:
                raise ValueError("--baselines names none beside eager, which every verdict measures")
            evaluator = Evaluator(device.arch, preset=preset, baselines=names, store=folder)
        except (ConfigError, TaskError, ValueError, OSError, ImportError) as error:
            raise refuse(with_remedy(error)) from None
        with evaluator:
            warn_if_closed(folder)
            try:
                evaluator.start()
            except InfraError as error:
                raise refuse(error, STOPPED) from None
            counts = fill_store(evaluator, tasks, builders or most_builders())
    print(counts)
    raise typer.Exit(0 if counts.measured else STOPPED)
