"""`warpsmith track`: sends MLflow what a run could not send itself."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

from orchestration.commands.refusal import STOPPED, refuse

_PATIENCE = 10.0  # seconds


def track(
    directory: Annotated[str, typer.Argument(metavar="RUN", help="A run's directory. The run must not be going on.")],
    seconds: Annotated[float, typer.Option(help="How long to try.", min=1.0)] = 60.0,
) -> None:
    """Send MLflow what a run could not send, and end its MLflow runs if it was killed."""
    from contextlib import ExitStack
    from dataclasses import replace

    from learners.patience import Patience
    from orchestration.run.directory import RunDirectory, root_and_name
    from orchestration.run.tracking import send_rest

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    root, name = root_and_name(directory)
    run = RunDirectory(root, name, patience=Patience(_PATIENCE))
    with ExitStack() as stack:
        try:
            config = replace(run.read_config(), root=root, name=name)
            stack.enter_context(run.lock(config.storage.lease))
            waited, left = send_rest(config, run, seconds)
        except OSError as error:
            raise refuse(f"{run}: {error}", STOPPED) from None
    if left:
        raise refuse(f"{run}: {left} records wait for MLflow; give the command again when it answers", STOPPED)
    print(f"{run}: MLflow has everything; {waited} records had waited")
