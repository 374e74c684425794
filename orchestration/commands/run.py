"""`warpsmith run`: trains, or with `--dry-run` prints the plan."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.commands.options import DryRun
from orchestration.commands.refusal import INTERRUPTED, STOPPED, refuse

if TYPE_CHECKING:
    from configs.schema import RunConfig
    from orchestration.setup.continuation import Continuation

_log = logging.getLogger(__name__)
_RESUME = "the same command again goes on after the last committed step"


def run(
    config: Annotated[
        str, typer.Argument(help="A configuration file, or the name of one of ours (`local`).", show_default=False)
    ] = "",
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value ...", show_default=False)] = None,
    dry_run: DryRun = False,
    from_bundle: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Go on with the run that `warpsmith bundle` put there, in its own configuration.",
            show_default=False,
        ),
    ] = None,
    branch: Annotated[
        bool,
        typer.Option("--branch", help="With --from-bundle: begin another run where the bundled one ended a phase."),
    ] = False,
) -> None:
    """Train: SFT, self-supervised learning and contrastive RL, as configured. The same command again resumes it."""
    from configs.load import ConfigError, load_config
    from orchestration.commands.machine import machine_arch

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    continuation = None
    try:
        if from_bundle is not None:
            continuation = _continuation(from_bundle, [config, *(overrides or [])], branch=branch)
            settings = continuation.config
        elif branch:
            raise ConfigError("--branch needs --from-bundle FOLDER")
        elif config:
            settings = load_config(config, overrides or [])
        else:
            raise ConfigError("give a configuration (`warpsmith run local`), or --from-bundle FOLDER")
        if settings.evaluator.arch == "auto":
            settings.evaluator.arch = machine_arch()
        if dry_run:
            from rich.console import Console

            from orchestration.commands.dry_run import print_plan

            print_plan(settings, Console())
            return
        if continuation is not None:
            continuation.unpack()
    except OSError as error:
        raise refuse(f"{error}; the same command tries again", STOPPED) from None
    carry_out(settings)


def _continuation(folder: Path, words: list[str], *, branch: bool) -> Continuation:
    """The bundled run, or a branch of it, with the overrides among the command's words. Raises ConfigError for any
    other word."""
    from configs.load import ConfigError
    from orchestration.setup.continuation import Continuation

    overrides = [word for word in words if word]
    if other := [word for word in overrides if "=" not in word]:
        raise ConfigError(f"--from-bundle takes the run's own configuration, not {other[0]}; give key=value alone")
    return Continuation.read(folder, overrides, branch=branch)


def carry_out(config: RunConfig) -> None:
    """Takes a run's phases until the run ends, fails or is interrupted. Raises typer.Exit unless it ends well."""
    from actors.learner import LearnerLost
    from actors.log_fields import JsonLogs
    from actors.pool_records import PoolExhausted
    from cluster.attempts import finished_line
    from learners.errors import LearnerError
    from learners.room import disk_full, is_full
    from orchestration import driver
    from orchestration.report.progress import Progress
    from orchestration.run.errors import LeaseLost
    from orchestration.run.interrupt import DrainOver, Interruptible
    from orchestration.run.watchdog import STALLED, Stalled
    from orchestration.step.proposals import TeacherDown

    if logs := JsonLogs.of(config):
        logs.begin()
    try:
        with Interruptible(), Progress() as progress:
            finished = driver.run(config, progress)
    except (LearnerLost, LearnerError, PoolExhausted, TeacherDown, OSError) as error:
        _log.debug("the run ends", exc_info=True)
        if is_full(error):  # written by a part that does not say where
            error = disk_full(_place_of(error, config), error)
        raise refuse(f"{error}; {_RESUME}", STOPPED) from None
    except LeaseLost as error:
        raise refuse(error, STOPPED) from None
    except Stalled as error:
        raise refuse(f"{error}; {_RESUME}", STALLED) from None
    except DrainOver:
        return
    except KeyboardInterrupt:
        print(f"stopped; {_RESUME}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    if finished:
        print(finished_line(config.name), flush=True)


def _place_of(error: Exception, config: RunConfig) -> str:
    """The folder that an error without a message of its own is about."""
    from orchestration.run.directory import RunDirectory

    named = getattr(error, "filename", None)
    return str(Path(os.fsdecode(named)).parent) if named else str(RunDirectory(config.root, config.name).local_folder)
