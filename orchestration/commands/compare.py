"""`warpsmith compare`: shows several runs side by side, from their directories alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from orchestration.commands.pages import read_report, write_page
from orchestration.commands.refusal import BAD_INPUT, refuse


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="Two or more runs: directories (paths or URIs), bundles, or folders of published runs.",
            show_default=False,
        ),
    ],
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write the comparison as one HTML page.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as one line of JSON instead.")] = False,
) -> None:
    """Compare runs: settings that differ, stages with intervals, gains over the first run."""
    from contextlib import ExitStack

    from rich.console import Console

    from orchestration.report import print_comparison, render_comparison, side_by_side
    from orchestration.report.side_by_side import as_json as plain

    reports = []
    for place in runs:
        with ExitStack() as stack:
            reports.append(read_report(place, stack)[1])
    try:
        compared = side_by_side(reports)
    except ValueError as error:
        raise refuse(error, BAD_INPUT) from None
    if as_json:
        print(json.dumps(plain(compared), allow_nan=False))
    else:
        print_comparison(compared, Console())
    if html is not None:
        write_page(html, render_comparison(compared))
        if not as_json:
            print(html)
