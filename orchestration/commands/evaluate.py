"""`warpsmith evaluate`: judges one program against a task's reference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from orchestration.commands.options import Arch, Baselines, Preset, Store, parse_baselines
from orchestration.commands.refusal import refuse, with_remedy
from orchestration.commands.store import default_store, open_to_runners, warn_if_closed


def evaluate(
    task: Annotated[str, typer.Argument(help="A bundled task's id, or a file in KernelBench's format.")],
    file: Annotated[Path, typer.Argument(help="A file that defines ModelNew.")],
    arch: Arch = "auto",
    preset: Preset = "fast",
    baselines: Baselines = "eager",
    require_shapes: Annotated[
        bool, typer.Option("--require-shapes", help="A program that fails at other shapes than the task's is wrong.")
    ] = False,
    store: Store = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only the verdict record.")] = False,
) -> None:
    """Judge one program against a task's reference. Exit code 0 if it is correct, 1 if it is not."""
    from evaluators.evaluator import Evaluator
    from evaluators.host.open_device import open_device
    from evaluators.tasks import TaskError, find_task, profile_of
    from orchestration.commands.second_opinion import make_confirm

    folder = store or default_store()
    with open_to_runners():
        try:
            device = open_device(arch)
            reference = find_task(task, profile_of(device.arch))
            source = file.read_text()
            evaluator = Evaluator(
                device.arch,
                preset=preset,
                baselines=parse_baselines(baselines, device.arch),
                require_shapes=require_shapes,
                confirm=make_confirm(device, folder),
                store=folder,
            )
        except (TaskError, ValueError, OSError, ImportError) as error:
            raise refuse(with_remedy(error)) from None
        with evaluator:
            warn_if_closed(folder)
            verdict = evaluator.evaluate(reference, source, author=f"file:{file.name}")
    if as_json:
        print(json.dumps(verdict.to_row(), default=dict))
    else:
        from rich.console import Console

        from orchestration.commands.verdict import print_verdict

        print_verdict(verdict, Console())
    raise typer.Exit(0 if verdict.succeeded else 1)
