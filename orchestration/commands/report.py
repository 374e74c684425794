"""`warpsmith report`: shows a run's tables and writes its pages, once or as long as the run goes on."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from orchestration.commands.follow import follow_run
from orchestration.commands.pages import read_report, write_page
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
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the stages' figures as one line of JSON instead.")
    ] = False,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", help="Write the HTML page anew while the run goes on. An open page follows by itself."
        ),
    ] = False,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", help="With --follow: the shortest time between two pages.", min=1.0)
    ] = 30.0,
) -> None:
    """Show a run's tables and write report/index.html (of a bundle or published rows only with --html)."""
    from rich.console import Console

    from orchestration.report import print_report, render_html, report_as_json
    from orchestration.report.publish import publish as publish_page

    if follow:
        if publish is not None or as_json:
            raise refuse("--publish and --json are of a run as it stands; give them without --follow")
        follow_run(place, html, interval)
    written: list[object] = []
    with ExitStack() as stack:
        source, built = read_report(place, stack)
        if as_json:
            print(json.dumps(report_as_json(built), allow_nan=False))
        else:
            print_report(built, Console())
        if html is not None:
            write_page(html, render_html(built))
            written.append(html)
        elif source.is_original:
            written.append(source.run.write_report(render_html(built)))
        if publish is not None:
            try:
                written.append(publish_page(built, source.run, publish))
            except OSError as error:
                raise refuse(f"--publish {publish}: {error}", STOPPED) from None
    if not as_json:
        print(*written, sep="\n")
