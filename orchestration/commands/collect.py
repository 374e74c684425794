"""`warpsmith collect`: verified programs of teachers, as a file that a later run learns from. Trains nothing."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.commands.options import DryRun
from orchestration.commands.reachable import refuse_silent
from orchestration.commands.refusal import STOPPED, refuse

if TYPE_CHECKING:
    from configs.schema import RunConfig
    from orchestration.run.directory import RunDirectory

_ALONE = (
    "schedule.phases=[collect]",
    "schedule.cycles=1",
    "placement.share=none",
    "placement.mps=false",
    "rollout.weight_transport=auto",
    "rollout.endpoint.url=''",
    "rollout.endpoint.model=''",
    "assessment.constant_policies=false",
)
"""What is left of a configuration without its policy."""


def collect(
    config: Annotated[
        str, typer.Argument(help="A configuration file, or the name of one of ours (`local`).", show_default=False)
    ],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value ...", show_default=False)] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Also write the examples here. Default: only the run directory.", show_default=False
        ),
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Ask the teachers of a configuration, keep what is right, train nothing. The same command again resumes it."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    settings, run = _checked(config, overrides or [], dry_run=dry_run)
    if dry_run:
        return
    if output is not None and not output.absolute().parent.is_dir():
        raise refuse(f"--output {output}: there is no folder {output.parent}; make it, or give another file")
    from orchestration.commands.run import carry_out

    carry_out(settings)
    state = run.read_state()
    if state is not None and state.finished:
        _hand_over(settings, run, output)


def _checked(config: str, overrides: list[str], *, dry_run: bool) -> tuple[RunConfig, RunDirectory]:
    """The configuration of a run that only collects, and its folder. Everything is checked that can be before actors
    start; a dry run also prints the plan. Refuses bad input."""
    from configs.load import load_config
    from orchestration.commands.machine import machine_arch
    from orchestration.run.directory import RunDirectory
    from orchestration.step.teachers import endpoints_of, make_teachers

    try:
        settings = load_config(config, [*overrides, *_ALONE])
        if not any(word.partition("=")[0].strip() == "name" for word in overrides):
            settings.name += "-collect"  # the run that learns from it has the name itself
        if settings.evaluator.arch == "auto":
            settings.evaluator.arch = machine_arch()
        make_teachers(settings)
        run = RunDirectory(settings.root, settings.name)
        state = run.read_state()
        if state is None or not state.finished:
            for key, url in endpoints_of(settings.sft):
                refuse_silent(key, url)
        if dry_run:
            from rich.console import Console

            from orchestration.commands.dry_run import print_plan

            print_plan(settings, Console())
    except OSError as error:
        raise refuse(f"{error}; the same command tries again", STOPPED) from None
    return settings, run


def _hand_over(config: RunConfig, run: RunDirectory, output: Path | None) -> None:
    """Writes the examples where they are wanted, and says how a run learns from them."""
    from orchestration.run.directory import EXAMPLES

    content, place = run.read_examples(), f"{run}/{EXAMPLES}"
    if output is not None:
        try:
            output.write_bytes(content)
        except OSError as error:
            raise refuse(f"--output {output}: {error}; the same command writes it again", STOPPED) from None
        place = str(output)
    count = content.count(b"\n")
    if not count:
        teachers = ", ".join(config.sft.teachers)
        raise refuse(f"no program of {teachers} was right; {run} has their verdicts", STOPPED)
    print(f"{count} verified programs: {place}")
    print(f"to learn from them: warpsmith run CONFIG 'sft.teachers=[{place}]' 'evaluator.verdicts_of=[{run}]'")
