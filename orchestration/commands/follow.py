"""`warpsmith report --follow`: writes the page of a run anew while the run goes on."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from orchestration.commands.pages import read_report, write_page
from orchestration.commands.refusal import INTERRUPTED, refuse
from orchestration.commands.standing import open_run
from orchestration.commands.watch import views_of

if TYPE_CHECKING:
    from orchestration.report.html import Live
    from orchestration.report.view import View

_SHARE = 0.05  # of the time, at most, in which pages are made: the run may measure on the same cores
_LOOKS_EVERY = 2.0  # seconds


def follow_run(place: str, html: Path | None, interval: float) -> None:
    """Writes the page after each step of a run, at most every `interval` seconds, until the run has ended or Ctrl-C.

    The caller then writes the last page, which loads itself no more.
    """
    from orchestration.report.watching import Watch
    from orchestration.run.interrupt import Interruptible

    if not _is_directory(place):
        raise refuse(f"{place}: only a run's own directory can be followed; leave out --follow")
    written, wait, seen = 0.0, interval, None
    try:
        with Interruptible():
            for view in views_of(Watch(open_run(place), place), min(_LOOKS_EVERY, interval)):
                now = time.monotonic()
                if view.ended or (written and now - written < wait) or seen == _state_of(view):
                    continue
                path = _write(place, html, view, wait)
                if not written:
                    print(f"{path} follows the run; Ctrl-C ends that", flush=True)
                written, seen = time.monotonic(), _state_of(view)
                wait = max(interval, (written - now) / _SHARE)
    except KeyboardInterrupt:
        _write_last(place, html)
        raise typer.Exit(INTERRUPTED) from None


def _is_directory(place: str) -> bool:
    from orchestration.report.published import is_published
    from orchestration.run.bundle_folder import is_bundle

    return "://" in place or not (is_bundle(Path(place)) or is_published(Path(place)))


def _state_of(view: View) -> object:
    """What a page shows differently. A page of the same steps is of the same run."""
    return [(line.key, line.done) for line in view.lines], view.best, view.set_aside


def _write(place: str, html: Path | None, view: View, wait: float) -> str:
    from orchestration.report.html import Live
    from orchestration.report.watch_view import expected

    return _write_page(place, html, Live(wait, time.strftime("%Y-%m-%d %H:%M:%S"), expected(view)))


def _write_last(place: str, html: Path | None) -> None:
    """A page that is left behind does not say that it follows the run."""
    _write_page(place, html, None)


def _write_page(place: str, html: Path | None, live: Live | None) -> str:
    from orchestration.report import render_html

    with ExitStack() as stack:
        source, built = read_report(place, stack)
        text = render_html(built, live)
        if html is None:
            return source.run.write_report(text)
        write_page(html, text)
        return str(html)
