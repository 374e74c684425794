"""`warpsmith report --follow`: the page of a run that goes on, in a real browser, without a server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestration.commands.main import app
from tests.orchestration.report.browser import CHROMIUM, Browser, browser
from tests.orchestration.report.growing_run import GrowingRun

PATIENCE = 240.0
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
_HURRIED = """
from orchestration.commands import follow
from orchestration.commands.main import main

follow._SHARE = 1.0  # makes pages as often as it can
main()
"""
TOP = "document.getElementById('programs').getBoundingClientRect().top"
FIRST = "document.querySelector('#programs ~ details')"


@pytest.fixture
def growing(tmp_path: Path) -> GrowingRun:
    made = GrowingRun(tmp_path)
    made.assess()
    made.train()
    made.beat(time.time() + 3600)  # its process lives, however long this takes
    return made


@pytest.fixture
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if not CHROMIUM.exists():
        pytest.skip("no Chromium")
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def followed(growing: GrowingRun) -> Iterator[subprocess.Popen[str]]:
    """The command, at work beside the test."""
    words = ["report", str(growing.run.local_path), "--follow", "--interval", "1"]
    with subprocess.Popen(
        [sys.executable, "-c", _HURRIED, *words], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def asked(shown: Browser, script: str) -> Any:
    """The value of an expression in a page that is whole; it may be loading itself just then."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with suppress(AssertionError):
            if value := shown.run(f"document.readyState === 'complete' ? [({script})] : []"):
                return value[0]
        assert time.monotonic() < deadline, script
        time.sleep(0.1)


def test_an_open_page_follows_the_run_and_keeps_what_its_reader_did(
    growing: GrowingRun, followed: subprocess.Popen[str], shown: Browser
) -> None:
    assert growing.run.local_path is not None
    page = growing.run.local_path / "report" / "index.html"
    until(page.is_file)
    shown.show(page)
    assert "The run goes on, and ends in about" in asked(shown, "document.querySelector('.live').textContent")
    assert "step 1" in asked(shown, "document.querySelector('.facts').textContent")
    asked(
        shown,
        f"{FIRST}.open = {FIRST}.querySelector('details').open = true, "
        "document.getElementById('configuration').nextElementSibling.open = true, "
        f"scrollBy(0, {TOP} + 120), window.isOld = true",
    )
    assert asked(shown, TOP) == pytest.approx(-120, abs=1)
    growing.train([2.0, 3.0, 80.0, None])
    until(lambda: "step 2" in page.read_text())
    until(lambda: asked(shown, "document.readyState === 'complete' && window.isOld !== true"))
    until(lambda: "step 2" in asked(shown, "document.querySelector('.facts').textContent"))
    assert asked(shown, TOP) == pytest.approx(-120, abs=2), "sections above have grown; the reader stays"
    assert asked(shown, f"{FIRST}.open && {FIRST}.querySelector('details').open") is True
    assert asked(shown, "document.getElementById('configuration').nextElementSibling.open") is True
    assert shown.problems() == []
    growing.finish()
    output, _ = followed.communicate(timeout=PATIENCE)
    assert followed.returncode == 0, output
    assert "follows the run; Ctrl-C ends that" in output
    until(lambda: asked(shown, "document.readyState === 'complete' && !document.documentElement.dataset.live"))
    assert "status finished" in " ".join(asked(shown, "document.querySelector('.facts').textContent").split())
    assert asked(shown, TOP) == pytest.approx(-120, abs=2)
    assert asked(shown, "document.querySelector('.live')") is None
    asked(shown, "window.isLast = true")
    shown.events.clear()
    time.sleep(1.5)  # longer than the page before waited
    assert asked(shown, "window.isLast") is True, "it loads itself no more"


@pytest.mark.slow
def test_a_reader_finds_whole_pages_alone(growing: GrowingRun, followed: subprocess.Popen[str]) -> None:
    assert growing.run.local_path is not None
    folder = growing.run.local_path / "report"
    until((folder / "index.html").is_file)
    for _ in range(2):
        before = (folder / "index.html").stat().st_ino
        growing.train()
        until(lambda before=before: (folder / "index.html").stat().st_ino != before)  # type: ignore[misc]
        assert (folder / "index.html").read_text().rstrip().endswith("</html>")


@pytest.mark.slow
def test_ctrl_c_leaves_a_page_that_is_still(growing: GrowingRun, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    command = [sys.executable, "-m", "orchestration.commands.main", "report", str(growing.run.local_path)]
    with subprocess.Popen(
        [*command, "--follow", "--html", str(page)],
        env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == f"{page} follows the run; Ctrl-C ends that\n"
        assert "data-live=" in page.read_text()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (130, "")
    assert "data-live=" not in page.read_text()
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


def test_what_cannot_be_followed_is_refused_in_one_line(tmp_path: Path) -> None:
    published = Path(__file__).parents[3] / "docs" / "results" / "hour"
    done = CliRunner().invoke(app, ["report", str(published), "--follow"])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "only a run's own directory can be followed" in done.stderr
    done = CliRunner().invoke(app, ["report", str(tmp_path), "--follow", "--publish", str(tmp_path / "there")])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
