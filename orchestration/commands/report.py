"""`warpsmith report`: shows a run's tables and writes its pages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestration.commands.refusal import STOPPED, refuse


def report(
    place: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A run's directory (a path or a URI), a bundle, or a published run's folder."
        ),
    ],
    publish: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Also write a page of results and its raw data into this folder.", show_default=False
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to write the HTML page instead.", show_default=False),
    ] = None,
) -> None:
    """Show a run's tables and write report/index.html (of a bundle or published rows only with --html)."""
    from contextlib import ExitStack
    from dataclasses import replace

    from rich.console import Console

    from configs.load import ConfigError
    from orchestration.report import build_report, print_report, render_html
    from orchestration.report.publish import publish as publish_page
    from orchestration.report.sources import opened
    from orchestration.run.errors import BundleError, RunDirectoryError

    with ExitStack() as stack:
        try:
            source = stack.enter_context(opened(place))
            built = replace(build_report(source.run), place=source.place)
        except (RunDirectoryError, ConfigError, BundleError) as error:
            raise refuse(error) from None
        print_report(built, Console())
        if html is not None:
            try:
                html.parent.mkdir(parents=True, exist_ok=True)
                html.write_text(render_html(built), "utf-8")
            except OSError as error:
                raise refuse(f"--html {html}: {error}", STOPPED) from None
            print(html)
        elif source.is_original:
            print(source.run.write_report(render_html(built)))
        if publish is not None:
            try:
                print(publish_page(built, source.run, publish))
            except OSError as error:
                raise refuse(f"--publish {publish}: {error}", STOPPED) from None
