"""The leaderboard's page in a real browser: complete, quiet, on a phone and on paper; and its tables in a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from orchestration.report.leaderboard import boards_of
from orchestration.report.leaderboard_page import print_leaderboard, render_leaderboard
from tests.orchestration.report.browser import CHROMIUM, Browser, browser
from tests.orchestration.report.entrants import entrant, several_sources

needs_browser = pytest.mark.skipif(not CHROMIUM.exists(), reason="no Chromium")
ORIGINS = [(name, f"results/{name}.parquet") for name in ("alpha", "beta", "gamma")]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("board") / "board.html"
    entrants = [*several_sources(), entrant("alpha", "level1/1", 2.0, arch="H100")]
    path.write_text(render_leaderboard(boards_of(entrants), ORIGINS, "Kernels of <spring>"), "utf-8")
    return path


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@needs_browser
def test_every_section_is_there_and_the_console_is_silent(shown: Browser, page: Path) -> None:
    shown.show(page)
    assert shown.problems() == []
    assert shown.requests() == [page.as_uri()], "nothing is loaded"
    sections = ["sources", "outcomes", "tasks", "rankings"]
    assert shown.run("[...document.querySelectorAll('h2')].map(each => each.id)") == sections
    assert shown.run("[...document.querySelectorAll('nav a')].map(each => each.hash.slice(1))") == sections
    assert shown.run("document.querySelector('h1').textContent") == "Kernels of <spring>"
    rows = shown.run(
        "[...document.querySelectorAll('.ranking')].map(each => "
        "[...each.querySelectorAll('tbody tr')].map(row => [...row.cells].slice(0, 4).map(cell => cell.innerText)))"
    )
    assert len(rows) == 6, "one of H100, five of cpu"
    assert [[cell.split("\n")[0] for cell in row] for row in rows[1]] == [
        ["alpha", "1", "ok", "3.00x"], ["beta", "2=", "ok", "2.97x"], ["gamma", "3", "ok", "1.20x"],
    ]  # fmt: skip


@needs_browser
def test_programs_stand_with_their_evidence_and_run_no_script(shown: Browser, page: Path) -> None:
    shown.show(page)
    text = shown.run("document.querySelector('main').textContent")
    for expected in (
        "results/beta.parquet", "clocks: works after its answer <b>late</b>", "right, 0.01 ms", "the outputs differ",
        "error 1.0e-07 on 8 outputs", "cannot tell a good program from a cheat", "</script><script>throw 1</script>",
        "KernelBench's fast_p over eager",
    ):  # fmt: skip
        assert expected in text, expected
    shown.run("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert shown.run("document.querySelectorAll('.below details pre .k, .below details pre .kn').length") > 10
    assert shown.problems() == []


@needs_browser
def test_a_phone_shows_all_of_it_without_scrolling_sideways(shown: Browser, page: Path) -> None:
    shown.show(page, width=390, height=844, touch=True)
    assert shown.run("document.documentElement.scrollWidth") == 390
    shown.media(dark=True, media="print")
    assert shown.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_the_terminal_shows_sources_and_leaders_in_120_columns() -> None:
    console = Console(file=io.StringIO())
    print_leaderboard(boards_of(several_sources()), console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= 120
    assert "…" not in text
    for expected in ("Sources, over eager", "beta", "2.97x", "level2/2", "cannot tell", "p = 1.5", "thorough"):
        assert expected in text, expected
