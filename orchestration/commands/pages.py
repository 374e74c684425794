"""What the commands share that show runs: a report from wherever the run is, and a page in a file."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestration.commands.refusal import STOPPED, refuse

if TYPE_CHECKING:
    from orchestration.report.assemble import Report
    from orchestration.report.sources import Source


def read_report(place: str, stack: ExitStack) -> tuple[Source, Report]:
    """The run at a place (see `orchestration.report.sources`), open as long as the stack, and its report. Ends the
    command with one line if there is none."""
    from orchestration.report import build_report
    from orchestration.report.sources import opened

    try:
        source = stack.enter_context(opened(place))
        return source, replace(build_report(source.run), place=source.place)
    except OSError as error:
        raise refuse(f"{place}: {error}") from None


def write_page(path: Path, text: str) -> None:
    """Writes a page, and the folders above it: whoever reads it sees the old one or the new one. Ends the command with
    one line if it cannot be written."""
    from evaluators.host.whole_files import write_whole

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    except OSError as error:
        raise refuse(f"--html {path}: {error}", STOPPED) from None
