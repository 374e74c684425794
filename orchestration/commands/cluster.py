"""`warpsmith cluster`: files that bring up a cluster for a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.commands.refusal import refuse

if TYPE_CHECKING:
    from configs.schema import TasksConfig

cluster = typer.Typer(help="Write the files that bring up a cluster for a run.", no_args_is_help=True)


@cluster.callback()
def _group() -> None:
    """Keeps `render` a command of its own: Typer would run the only command of a group without its name."""


@cluster.command()
def render(
    config: Annotated[str, typer.Argument(help="A configuration file, or the name of one of ours (`local`).")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value ...", show_default=False)] = None,
    form: Annotated[
        str, typer.Option("--format", help="rayjob, raycluster (KubeRay), ray-up, skypilot or slurm.")
    ] = "raycluster",
) -> None:
    """Print the manifest of a cluster, from the section `cluster` of the configuration."""
    from cluster.render import FORMATS
    from configs.load import load_config

    if form not in FORMATS:
        raise refuse(f"--format must be one of {', '.join(FORMATS)}, got {form!r}")
    settings = load_config(config, overrides or [])
    manifest = FORMATS[form](settings)
    _refuse_unknown_tasks(settings.tasks)
    print(manifest, end="")


def _refuse_unknown_tasks(config: TasksConfig) -> None:
    """Raises TaskError for tasks that no source has. Nothing is checked if a source is not on this machine: the nodes
    may have it."""
    from orchestration.setup.tasks import select_tasks

    sources = [name.strip() for name in f"{config.source},{config.held_out.source}".split(",") if name.strip()]
    if all(name == "bundled" or Path(name).exists() for name in sources):
        select_tasks(config)
