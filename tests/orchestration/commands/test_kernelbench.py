"""`warpsmith kernelbench` and `warpsmith leaderboard` through their front door, with a real evaluator on the CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orchestration.kernelbench.rows import read_judged
from tests.orchestration.commands.programs import SHIFT, SHIFTED_IN_PLACE
from tests.orchestration.kernelbench.numbered import write_numbered_run

RIGHT = SHIFTED_IN_PLACE
WRONG = RIGHT.replace("add_(1)", "add_(1.01)")
BROKEN = "class ModelNew: pass"
JUDGE = ("--arch", "cpu", "--json")


def kernelbench_result(*, correct: bool, compiled: bool = True) -> list[dict[str, Any]]:
    return [
        {
            "sample_id": 0,
            "compiled": compiled,
            "correctness": correct,
            "metadata": {},
            "runtime": 0.5,
            "runtime_stats": {},
        }
    ]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with four tasks of level 1, and a run of three programs that its evaluation found right, right and not
    compiled."""
    for number, name in enumerate(("One", "Two", "Three", "Four"), start=1):
        path = tmp_path / "checkout" / "KernelBench" / "level1" / f"{number}_{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SHIFT)
    run = tmp_path / "checkout" / "runs" / "theirs"
    run.mkdir(parents=True)
    for number, source in ((1, RIGHT), (2, WRONG), (3, BROKEN), (9, RIGHT)):
        (run / f"level_1_problem_{number}_sample_0_kernel.py").write_text(source)
    results = {
        "1": kernelbench_result(correct=True),
        "2": kernelbench_result(correct=True),
        "3": kernelbench_result(correct=False, compiled=False),
    }
    (run / "eval_results.json").write_text(json.dumps(results))
    return tmp_path / "checkout"


@pytest.mark.slow
def test_a_run_is_judged_again_beside_its_own_results_and_once_only(warpsmith: Any, checkout: Path) -> None:
    command = ("kernelbench", "judge", str(checkout / "runs" / "theirs"), *JUDGE, "--output", "out/verdicts.parquet")
    done = warpsmith(*command)
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    found = {each["task"]: (each["outcome"], each["agreement"]) for each in answer["programs"]}
    assert found == {
        "level1/1": ("ok", "right by both"),
        "level1/2": ("wrong", "by theirs alone"),
        "level1/3": ("runtime_error", "by neither"),
    }
    assert answer["agreement"] == {"right by both": 1, "by theirs alone": 1, "by neither": 1}
    assert (answer["without_task"], answer["without_program"]) == (["level1/9"], 1)
    assert answer["fast_p"]["eager"]["all levels"]["0"]["value"] == 0.25, "of all four tasks"
    rows = read_judged(Path("out/verdicts.parquet"))
    assert [(row.origin, row.verdict.task, row.program) for row in rows] == [
        ("theirs", "level1/1", RIGHT), ("theirs", "level1/2", WRONG), ("theirs", "level1/3", BROKEN),
    ]  # fmt: skip
    costs = [row.verdict.cost for row in rows]
    # The same command judges nothing again, but a program that has changed.
    (checkout / "runs" / "theirs" / "level_1_problem_3_sample_0_kernel.py").write_text(WRONG)
    shown = warpsmith(*(word for word in command if word != "--json"))
    assert shown.exit_code == 0, shown.output
    for expected in (
        "right, 0.5 ms",
        "not compiled",
        "not judged, since --tasks does not have them: level1/9",
        "wrong",
    ):
        assert expected in shown.stdout, expected
    assert shown.stdout.splitlines()[-1] == "3 programs: 1 by neither, 1 by theirs alone, 1 right by both"
    again = read_judged(Path("out/verdicts.parquet"))
    assert [row.verdict.cost == cost for row, cost in zip(again, costs, strict=True)] == [True, True, False]
    board = warpsmith("leaderboard", "published=out/verdicts.parquet", "--json")
    assert board.exit_code == 0, board.output
    (made,) = json.loads(board.stdout)
    assert [each["task"] for each in made["tasks"]] == ["level1/1", "level1/2", "level1/3"]
    assert made["tasks"][1]["places"][0]["theirs"] == "right, 0.5 ms"


def test_published_programs_are_judged_on_tasks_from_parquet(warpsmith: Any, tmp_path: Path) -> None:
    lines = [{"level_id": 2, "task_id": 5, "custom_code": BROKEN}, {"level_id": 1, "task_id": 1, "custom_code": BROKEN}]
    (tmp_path / "kernels.jsonl").write_text("\n".join(map(json.dumps, lines)))
    table = {"code": [SHIFT, SHIFT], "level": [1, 2], "name": ["1_One", "5_Five"], "problem_id": [1, 5]}
    pq.write_table(pa.table(table), tmp_path / "tasks.parquet")
    done = warpsmith("kernelbench", "judge", "kernels.jsonl", "--tasks", "tasks.parquet", "--levels", "2", *JUDGE)
    assert done.exit_code == 1, "none is right"
    answer = json.loads(done.stdout)
    assert [(each["task"], each["outcome"]) for each in answer["programs"]] == [("level2/5", "runtime_error")]
    assert (answer["origin"], answer["agreement"], answer["without_task"]) == ("kernels", {"no result": 1}, [])


def test_a_run_is_exported_and_stands_on_a_leaderboard(warpsmith: Any, tmp_path: Path) -> None:
    write_numbered_run(tmp_path / "runs")
    done = warpsmith("kernelbench", "export", "runs/mine", "checkout")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "level 1: checkout/runs/mine-level1",
        "level 2: checkout/runs/mine-level2",
        "times of baselines: checkout/results/timing/warpsmith-mine",
        "left out, since KernelBench has no number of them: level1/softmax",
        "3 programs of 4 problems, 3 right",
    ]
    board = warpsmith("leaderboard", "runs/mine", "--html", "pages/board.html", "--title", "Mine")
    assert board.exit_code == 0, board.output
    assert "Sources, over eager" in board.stdout
    assert "<h1>Mine</h1>" in (tmp_path / "pages" / "board.html").read_text()


def test_fast_p_stands_in_a_report_and_in_a_comparison(warpsmith: Any, tmp_path: Path) -> None:
    for name in ("one", "other"):
        write_numbered_run(tmp_path / "runs", name)
    done = warpsmith("report", "runs/one", "--json")
    (group,) = json.loads(done.stdout)["groups"]
    last = group["stages"]["1-contrastive_rl"]["fast_p"]
    assert last["eager"]["all levels"]["1"]["value"] == pytest.approx((1 + 0 + 0 + 1 + 0.5) / 5)
    assert last["eager"]["level 2"]["2"]["value"] == 0.5
    assert last["torch_compile"]["level 2"]["2"]["value"] == 0.0, "2.5x over eager is 2x over torch.compile"
    both = json.loads(warpsmith("compare", "runs/one", "runs/other", "--json").stdout)
    assert both["groups"][0]["runs"]["other"]["stages"]["1-contrastive_rl"]["fast_p"] == last
    for command in (("report", "runs/one"), ("compare", "runs/one", "runs/other")):
        text = warpsmith(*command).stdout
        assert "KernelBench's fast_p over eager" in text
        assert "contrastive_rl, level 2" in text
        assert max(map(len, text.splitlines())) <= 120
    page = (tmp_path / "runs" / "one" / "report" / "index.html").read_text()
    assert "KernelBench&#39;s fast_p over torch_compile" in page


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["export", "absent", "out"], "not a run directory"),
        (["export", "absent", "out", "--samples", "some"], "--samples must be best or all, got 'some'"),
        (["judge", "absent"], "absent: neither the folder of a KernelBench run nor a .jsonl file"),
        (["judge", "empty"], "empty: holds no program"),
        (["judge", "run"], "run: --tasks must name its tasks"),
        (["judge", "run", "--tasks", "bundled"], "none of its 1 programs is for one of the 24 tasks"),
        (["judge", "run", "--tasks", "bundled", "--preset", "slow"], "slow"),
        (["judge", "run", "--tasks", "absent"], "absent: no such file or folder"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(warpsmith: Any, tmp_path: Path, command: list[str], expected: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "level_1_problem_1_sample_0_kernel.py").write_text(BROKEN)
    if "slow" in command:  # a preset is only looked at for programs that have tasks
        (tmp_path / "level1").mkdir()
        (tmp_path / "level1" / "1_One.py").write_text(SHIFT)
        command = [str(tmp_path) if word == "bundled" else word for word in command]
    done = warpsmith("kernelbench", *command, *(["--arch", "cpu"] if command[0] == "judge" else []))
    assert done.exit_code == 2, done.output
    assert done.stderr.strip().startswith("error: ")
    assert len(done.stderr.strip().splitlines()) == 1
    assert expected in done.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["absent"], "absent: neither a run nor a Parquet file of verdicts"),
        (["text.parquet"], "text.parquet: no rows of verdicts"),
        (["a/x.parquet", "b/x.parquet"], "two sources are named x: name them apart, as x-2=PLACE"),
        (["text.parquet", "--over", "cudnn"], "--over must be eager or best, got 'cudnn'"),
    ],
)  # fmt: skip
def test_a_source_that_is_none_is_named(warpsmith: Any, tmp_path: Path, arguments: list[str], expected: str) -> None:
    (tmp_path / "text.parquet").write_text("text")
    done = warpsmith("leaderboard", *arguments)
    assert done.exit_code == 2, done.output
    assert expected in done.stderr
