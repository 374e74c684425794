"""`warpsmith compare`: shows several runs side by side, from their directories alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from orchestration.commands.refusal import BAD_INPUT, STOPPED, refuse


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
    from dataclasses import replace

    from rich.console import Console

    from configs.load import ConfigError
    from orchestration.report import build_report, print_comparison, render_comparison, side_by_side
    from orchestration.report.side_by_side import as_json as plain
    from orchestration.report.sources import opened
    from orchestration.run.errors import BundleError, RunDirectoryError

    reports = []
    for place in runs:
        try:
            with ExitStack() as stack:
                source = stack.enter_context(opened(place))
                reports.append(replace(build_report(source.run), place=source.place))
        except (RunDirectoryError, ConfigError, BundleError) as error:
            raise refuse(error) from None
        except OSError as error:
            raise refuse(f"{place}: {error}") from None
    try:
        compared = side_by_side(reports)
    except ValueError as error:
        raise refuse(error, BAD_INPUT) from None
    if as_json:
        print(json.dumps(plain(compared), allow_nan=False))
    else:
        print_comparison(compared, Console())
    if html is not None:
        try:
            html.parent.mkdir(parents=True, exist_ok=True)
            html.write_text(render_comparison(compared), "utf-8")
        except OSError as error:
            raise refuse(f"--html {html}: {error}", STOPPED) from None
        if not as_json:
            print(html)
