"""The seconds of evaluators count once, where a program was judged, however many steps have its verdict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from configs.schema import RunConfig
from evaluators.records import Outcome, Verdict
from orchestration.report.rows import RunRows
from orchestration.run.directory import RunDirectory


def verdict(candidate: str, seconds: float, outcome: Outcome = Outcome.OK, **about: str) -> Verdict:
    evaluator = {"preset": "fast", **about}
    return Verdict(candidate, "level1/softmax", "cpu", outcome, evaluator=evaluator, cost={"total": seconds})


def judging(folder: Path, steps: dict[tuple[str, int], list[Verdict]]) -> dict[str, float]:
    run, config = RunDirectory(folder, "run"), RunConfig(name="run")
    for (phase, step), verdicts in steps.items():
        run.verdicts.write(phase, step, verdicts)
    return dict(RunRows(run, config).judging)


def test_seconds_count_where_the_run_first_judged_a_program(tmp_path: Path) -> None:
    """The names of phases have another order than the run."""
    taught, proposed = verdict("a", 2.0), verdict("b", 4.0)
    steps = {
        ("1-contrastive_rl", 0): [taught, proposed],
        ("1-contrastive_rl", 1): [proposed],
        ("1-sft", 0): [taught],
        ("assess/1-sft", 0): [taught, verdict("a", 8.0, preset="full")],
    }
    assert judging(tmp_path, steps) == {"1-sft": 2.0, "assess/1-sft": 8.0, "1-contrastive_rl": 4.0}


def test_what_was_judged_again_counts_again(tmp_path: Path) -> None:
    failed, right = verdict("a", 3.0, Outcome.INFRA), verdict("a", 2.0)
    other = replace(right, arch="H100")
    steps = {("1-sft", 0): [failed], ("1-contrastive_rl", 0): [right, other], ("1-contrastive_rl", 1): [right, other]}
    assert judging(tmp_path, steps) == {"1-sft": 3.0, "1-contrastive_rl": 4.0}


def test_verdicts_of_other_runs_and_of_builders_hold_no_evaluator(tmp_path: Path) -> None:
    steps = {("1-sft", 0): [verdict("a", 2.0, taken_over="another"), verdict("b", 4.0, judged_on="cpu")]}
    assert judging(tmp_path, steps) == {}
