"""`warpsmith report`: shows a run's tables and writes its pages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestration.commands.refusal import STOPPED, refuse


def report(
    directory: Annotated[Path, typer.Argument(metavar="RUN", help="A run's directory, or a bundle of a run.")],
    publish: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Also write a page of results and its raw data into this folder.", show_default=False
        ),
    ] = None,
) -> None:
    """Show a run's tables and write report/index.html (not of a bundle)."""
    from contextlib import ExitStack
    from dataclasses import replace

    from rich.console import Console

    from configs.load import ConfigError
    from orchestration.report import build_report, print_report, render_html
    from orchestration.report.publish import publish as publish_page
    from orchestration.run.bundle_folder import is_bundle
    from orchestration.run.bundle_restore import unpacked
    from orchestration.run.directory import RunDirectory
    from orchestration.run.errors import BundleError, RunDirectoryError

    with ExitStack() as stack:
        try:
            if is_bundle(directory):
                run_directory = stack.enter_context(unpacked(directory))
                built = replace(build_report(run_directory), place=str(directory))
            else:
                run_directory = RunDirectory(str(directory.parent), directory.name)
                built = build_report(run_directory)
        except (RunDirectoryError, ConfigError, BundleError) as error:
            raise refuse(error) from None
        print_report(built, Console())
        if not is_bundle(directory):
            print(run_directory.write_report(render_html(built)))
        if publish is not None:
            try:
                print(publish_page(built, run_directory, publish))
            except OSError as error:
                raise refuse(f"--publish {publish}: {error}", STOPPED) from None
