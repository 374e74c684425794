"""The comparison of evolving with one-shot sampling: best programs so far, at as many samples."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks.evolve import Course, checkpoints, course_of, table_by_evaluations, table_of
from configs.schema import RunConfig
from orchestration.run.directory import RunDirectory
from tests.orchestration.report.samples import write_step


def run_of(folder: Path, side: str, rounds: list[dict[str, list[float | None]]]) -> RunDirectory:
    """A run whose rounds have these samples, and one more a task that does not compile."""
    run = RunDirectory(folder, side)
    run.write_config(RunConfig(name=side, root=str(folder)))
    for step, speeds in enumerate(rounds):
        write_step(run, f"1-{side}", step, speeds)
    return run


def test_the_best_so_far_never_falls_and_is_compared_at_equal_samples(tmp_path: Path) -> None:
    vanilla = run_of(tmp_path, "vanilla", [{"a": [2.0], "b": [None]}, {"a": [1.5], "b": [0.5]}])
    evolve = run_of(tmp_path, "evolve", [{"a": [2.0], "b": [None]}, {"a": [8.0], "b": [4.0]}])
    courses = [course_of(run, ["a", "b"]) for run in (vanilla, evolve)]
    assert courses[0].best.tolist() == [[2.0, 1.0]] * 4
    assert courses[1].best.tolist() == [[2.0, 1.0], [2.0, 1.0], [8.0, 4.0], [8.0, 4.0]]
    assert courses[1].programs == [2, 2, 4, 4]
    console = Console(file=io.StringIO(), width=140)
    console.print(table_of("Tasks", [courses[0]], [courses[1]]))
    assert isinstance(console.file, io.StringIO)
    last = console.file.getvalue().strip().splitlines()[-1]
    assert last.split()[0] == "4"
    assert "4.00x" in last, "the quotient of the geometric means"


def test_points_double_and_end_with_the_last_sample() -> None:
    assert list(checkpoints(12)) == [1, 2, 4, 8, 12]
    assert list(checkpoints(1)) == [1]
    assert list(checkpoints(120, 25)) == [25, 50, 100, 120]


def test_a_side_that_repeats_itself_has_more_samples_for_as_many_evaluations() -> None:
    vanilla = Course(np.array([[1.0], [1.0], [2.0], [2.0]]), [20, 25, 30, 60])
    evolve = Course(np.array([[1.0], [4.0]]), [30, 60])
    assert [vanilla.after(count).tolist() for count in (10, 25, 40)] == [[1.0], [1.0], [2.0]]
    console = Console(file=io.StringIO(), width=140)
    console.print(table_by_evaluations("Tasks", [vanilla], [evolve]))
    assert isinstance(console.file, io.StringIO)
    rows = [line.split() for line in console.file.getvalue().splitlines() if line.strip()[:1].isdigit()]
    assert [(row[0], row[1], row[3], row[5]) for row in rows] == [
        ("25", "1.00x", "1.00x", "1.00x"),
        ("50", "2.00x", "1.00x", "0.50x"),
        ("60", "2.00x", "4.00x", "2.00x"),
    ]
