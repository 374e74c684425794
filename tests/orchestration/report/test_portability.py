"""The report compares the best programs on the architectures that judged them."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from configs.load import load_config
from evaluators.records import Candidate, Estimate, Outcome, Verdict
from orchestration.report import build_report, print_report, render_html
from orchestration.report.tables import portability_table
from orchestration.run.directory import RunDirectory
from tests.orchestration.report.samples import write_step

SPEEDS = {"cpu": (1.0, 2.0, 3.0, 4.0), "A100": (2.0, 0.5, 1.5, None)}


def judged(task: int, arch: str, speedup: float | None) -> tuple[Candidate, Verdict]:
    candidate = Candidate.propose(f"level1/{task}", f"x = {task}", "policy:1")
    outcome = Outcome.WRONG if speedup is None else Outcome.OK
    speedups = {} if speedup is None else {"eager": Estimate(speedup, speedup, speedup, 9)}
    return candidate, Verdict(candidate.digest, candidate.task_id, arch, outcome, speedups=speedups)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run with a best program of each of four tasks on `cpu`, three of which are right on an A100. Two more were
    judged elsewhere: a program that is no best one, and one that an L40S could not judge."""
    run = RunDirectory(tmp_path, "run")
    run.write_config(load_config("local", ["name=run", "evaluation.archs={A100: {}, L40S: {}, T4: {}}"]))
    pairs = [judged(task, arch, speed) for arch, speeds in SPEEDS.items() for task, speed in enumerate(speeds)]
    other, verdict = judged(9, "A100", 7.0)
    failed = replace(judged(0, "L40S", 1.0)[1], outcome=Outcome.INFRA, speedups={})
    run.candidates.write("1-contrastive_rl", 0, [candidate for candidate, _ in pairs[:4]] + [other])
    run.verdicts.write("1-contrastive_rl", 0, [*(verdict for _, verdict in pairs), verdict, failed])
    run.kernels.save_best_of("cpu", pairs[:4])
    run.kernels.save_best_of("A100", pairs[4:])
    return run


def test_the_best_programs_are_compared_on_every_architecture_that_judged_them(run: RunDirectory) -> None:
    table = portability_table(build_report(run))
    assert table is not None
    assert [name for name, _ in table.rows] == ["cpu", "A100"]
    figures = {name: [cell.value for cell in cells] for name, cells in table.rows}
    assert table.columns == ("tasks", "success", "faster", "mean", "max", "75 %", "median", "25 %")
    assert figures["cpu"] == ["4", "100.0%", "75.0%", "2.50x", "4.00x", "3.25x", "2.50x", "1.75x"]
    assert figures["A100"] == ["4", "75.0%", "50.0%", "1.33x", "2.00x", "1.75x", "1.50x", "1.00x"]


def test_a_run_on_one_architecture_has_no_such_table(run: RunDirectory) -> None:
    run.write_config(load_config("local", ["name=run"]))
    assert portability_table(build_report(run)) is None


def test_terminal_and_page_show_it(run: RunDirectory) -> None:
    write_step(run, "assess/base", 0, {"level1/0": [1.5, None]})
    report, out = build_report(run), io.StringIO()
    print_report(report, Console(file=out, width=120))
    assert all("Portability" in text and "A100" in text for text in (out.getvalue(), render_html(report)))
