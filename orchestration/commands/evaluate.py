"""`warpsmith evaluate`: judges one program against a task's reference."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.commands.open_evaluator import opened_evaluator
from orchestration.commands.options import (
    Arch,
    Baselines,
    Containment,
    Marks,
    Preset,
    Store,
    Strict,
)

if TYPE_CHECKING:
    from evaluators.host.device import Device
    from evaluators.records import Task, Verdict

_AUDIT_SECONDS = 60.0  # of one task, whose speed-up jumps; most audits take a few seconds


def evaluate(
    task: Annotated[str, typer.Argument(help="A bundled task's id, or a file in KernelBench's format.")],
    file: Annotated[Path, typer.Argument(help="A file that defines ModelNew.")],
    arch: Arch = "auto",
    preset: Preset = "fast",
    baselines: Baselines = "eager",
    require_shapes: Annotated[
        bool, typer.Option("--require-shapes", help="A program that fails at other shapes than the task's is wrong.")
    ] = False,
    strict: Strict = "drop_in",
    require_containment: Containment = "",
    audit: Marks = None,
    store: Store = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only the verdict record.")] = False,
) -> None:
    """Judge one program against a task's reference. Exit code 0 if it is correct, 1 if it is not."""
    choices = (arch, preset, baselines, strict, require_containment, audit, store)
    with opened_evaluator(*choices, lambda device: _read(task, file, device), require_shapes=require_shapes) as (
        evaluator,
        (reference, source),
    ):
        verdict = evaluator.evaluate(reference, source, author=f"file:{file.name}")
    verdict = _with_audit(verdict, reference)
    if as_json:
        print(json.dumps(verdict.to_row(), default=dict))
    else:
        from rich.console import Console

        from orchestration.commands.verdict import print_verdict

        print_verdict(verdict, Console())
    raise typer.Exit(0 if verdict.succeeded else 1)


def _read(task: str, file: Path, device: Device) -> tuple[Task, str]:
    """The task at the sizes of this device, and the program."""
    from evaluators.tasks import find_task, profile_of
    from orchestration.setup.tasks import refuse_broken

    reference = find_task(task, profile_of(device.arch))
    refuse_broken([reference], "correct it")
    return reference, file.read_text()


def _with_audit(verdict: Verdict, task: Task) -> Verdict:
    """The verdict, which says so if its task cannot tell a good program from a cheat. A task that is not marked is
    audited now, if the speed-up is one that gets a second look."""
    from evaluators.audit.marks import blind_task, marks_of
    from evaluators.audit.run import audit_in_process
    from evaluators.guard.ruling import Jump
    from evaluators.records import BLIND_TASK

    is_marked = any(finding.kind == BLIND_TASK for finding in verdict.guard)
    if is_marked or verdict.speedup is None or not Jump().seen_in(verdict.speedup, None):
        return verdict
    hints = [blind_task(mark) for mark in marks_of([audit_in_process(task, seconds=_AUDIT_SECONDS)])]
    return replace(verdict, guard=(*hints, *verdict.guard))
